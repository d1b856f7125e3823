//! Order: streams, and events across them.

use cudarc::driver::sys;

use super::{Device, DriverError, check};

/// What is done one after the other, at the lowest priority: an engine's own work goes first.
#[derive(Debug)]
pub struct Stream {
    pub(super) device: Device,
    pub(super) stream: sys::CUstream,
}

// SAFETY: a stream may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: by several at once too; the driver puts their calls in order.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that doesn't wait for the legacy default stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device) -> Result<Self, DriverError> {
        device.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers.
        check("cuCtxGetStreamPriorityRange", unsafe {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)
        })?;
        let mut stream = std::ptr::null_mut();
        const NON_BLOCKING: u32 = 1;
        // SAFETY: the context is current; destroyed when dropped.
        check("cuStreamCreateWithPriority", unsafe {
            sys::cuStreamCreateWithPriority(&raw mut stream, NON_BLOCKING, least)
        })?;
        Ok(Self {
            device: device.clone(),
            stream,
        })
    }

    /// Where its work goes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits for all that was asked of it.
    ///
    /// # Errors
    /// What a kernel or copy has failed with.
    pub fn wait(&self) -> Result<(), DriverError> {
        self.device.enter()?;
        // SAFETY: the stream is there until dropped.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream)
        })
    }

    /// An event that comes when all that was asked of the stream until now is done.
    ///
    /// # Errors
    /// What the driver says.
    pub fn record(&self) -> Result<Event, DriverError> {
        let event = Event::new(&self.device)?;
        // SAFETY: both are there, and of the same context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(event.event, self.stream)
        })?;
        Ok(event)
    }

    /// What is asked of the stream from now on waits for the event, which may be another stream's.
    ///
    /// # Errors
    /// What the driver says.
    pub fn after(&self, event: &Event) -> Result<(), DriverError> {
        self.device.enter()?;
        // SAFETY: both are there; the driver keeps what it needs of the event.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(self.stream, event.event, 0)
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by the driver, and used by nobody any more; its work is still done.
        unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// A place in a stream.
#[derive(Debug)]
pub struct Event {
    device: Device,
    event: sys::CUevent,
}

// SAFETY: an event may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: by several at once too.
unsafe impl Sync for Event {}

impl Event {
    fn new(device: &Device) -> Result<Self, DriverError> {
        device.enter()?;
        let mut event = std::ptr::null_mut();
        const NO_TIMING: u32 = 2;
        // SAFETY: the context is current; destroyed when dropped.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&raw mut event, NO_TIMING)
        })?;
        Ok(Self {
            device: device.clone(),
            event,
        })
    }

    /// Whether it has come.
    ///
    /// # Errors
    /// What the work before it has failed with.
    pub fn is_past(&self) -> Result<bool, DriverError> {
        self.device.enter()?;
        // SAFETY: the event is there until dropped.
        match unsafe { sys::cuEventQuery(self.event) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits for it.
    ///
    /// # Errors
    /// What the work before it has failed with.
    pub fn wait(&self) -> Result<(), DriverError> {
        self.device.enter()?;
        // SAFETY: as above.
        check("cuEventSynchronize", unsafe {
            sys::cuEventSynchronize(self.event)
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by the driver; one that hasn't come yet is destroyed once it has.
        unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}
