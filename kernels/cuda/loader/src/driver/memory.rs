//! Memory: the GPU's, another process's, and pinned.

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::NonNull;

use cudarc::driver::sys;

use super::{Device, DriverError, Event, Stream, check};

/// Memory of the GPU.
#[derive(Debug)]
pub struct Memory {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Allocates; what is in it is anything.
    ///
    /// # Errors
    /// Where the GPU has no more.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        device.enter()?;
        let mut address = 0;
        // SAFETY: the context is current; freed when dropped.
        check("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&raw mut address, bytes.max(1))
        })?;
        Ok(Self {
            device: device.clone(),
            address,
            bytes,
        })
    }

    /// Its first byte's address, a multiple of 256.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What another process needs to open it. The handle is of the whole allocation.
    ///
    /// # Errors
    /// What the driver says.
    pub fn ipc_handle(&self) -> Result<IpcHandle, DriverError> {
        self.device.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the memory is there, and allocated by `cuMemAlloc`.
        check("cuIpcGetMemHandle", unsafe {
            sys::cuIpcGetMemHandle(&raw mut handle, self.address)
        })?;
        Ok(IpcHandle(handle.reserved.map(i8::cast_unsigned)))
    }

    /// The memory as a dma-buf, which an RDMA adapter can register: it then reads segments where they are made. Address and
    /// length must be multiples of the system's page size.
    ///
    /// # Errors
    /// Where the driver or the GPU doesn't offer that.
    pub fn dma_buf(&self) -> Result<OwnedFd, DriverError> {
        self.device.enter()?;
        let mut descriptor: i32 = -1;
        use sys::CUmemRangeHandleType as Type;
        // SAFETY: the range is the allocation, and an `int` is written.
        check("cuMemGetHandleForAddressRange", unsafe {
            sys::cuMemGetHandleForAddressRange(
                (&raw mut descriptor).cast(),
                self.address,
                self.bytes,
                Type::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                0,
            )
        })?;
        // SAFETY: new, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: allocated once. Freeing waits for the GPU's work, so that no kernel finds it gone.
            unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// What opens memory of another process: 64 opaque bytes, which the engine sends over its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpcHandle(pub [u8; 64]);

/// Memory of another process's, mapped here. That process must keep it until this is dropped.
#[derive(Debug)]
pub struct Imported {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Imported {
    /// Opens what another process has exported on the same GPU. A process can't open its own.
    ///
    /// # Errors
    /// Where the handle is none, or of another GPU.
    pub fn open(device: &Device, handle: IpcHandle) -> Result<Self, DriverError> {
        device.enter()?;
        let handle = sys::CUipcMemHandle {
            reserved: handle.0.map(u8::cast_signed),
        };
        let mut address = 0;
        const LAZY_PEER_ACCESS: u32 = 1;
        // SAFETY: the context is current; closed when dropped.
        check("cuIpcOpenMemHandle", unsafe {
            sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, LAZY_PEER_ACCESS)
        })?;
        let mut imported = Self {
            device: device.clone(),
            address,
            bytes: 0,
        };
        let mut start = 0;
        // SAFETY: writes two numbers.
        check("cuMemGetAddressRange", unsafe {
            sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut imported.bytes, address)
        })?;
        Ok(imported)
    }

    /// Its length: the whole allocation's, whichever part of it was exported.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte's address.
    pub const fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: opened once.
            unsafe { sys::cuIpcCloseMemHandle(self.address) };
        }
    }
}

/// Host memory that doesn't move: copies go over the bus without a detour, and an adapter may read it. Cached, not
/// write-combined, as the processor reads what is in it.
#[derive(Debug)]
pub struct Pinned {
    device: Device,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is plain memory that one value owns.
unsafe impl Send for Pinned {}
// SAFETY: and that is only read where shared.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates, with zeros in it.
    ///
    /// # Errors
    /// Where the system gives no more.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, DriverError> {
        device.enter()?;
        let mut pointer = std::ptr::null_mut();
        const PORTABLE: u32 = 1;
        // SAFETY: the context is current; freed when dropped.
        check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut pointer, bytes.max(1), PORTABLE)
        })?;
        let pointer = NonNull::new(pointer.cast::<u8>()).ok_or(DriverError {
            call: "cuMemHostAlloc",
            code: sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        })?;
        // SAFETY: so many bytes were allocated.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Self {
            device: device.clone(),
            pointer,
            bytes,
        })
    }

    /// What is in it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: so many initialised bytes, which no copy writes: those own the memory.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    /// The beginning of a piece that is all within it.
    fn piece(&self, at: usize, bytes: usize) -> Result<NonNull<u8>, DriverError> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(OUT_OF_RANGE);
        }
        // SAFETY: within the memory.
        Ok(unsafe { self.pointer.add(at) })
    }

    /// What is in it, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: allocated once, and no copy is under way.
            unsafe { sys::cuMemFreeHost(self.pointer.as_ptr().cast()) };
        }
    }
}

/// Pinned memory that the GPU reads or writes until an event.
#[derive(Debug)]
pub struct InFlight {
    /// Taken when it is over.
    memory: Option<Pinned>,
    event: Event,
}

impl InFlight {
    /// Whether it is over.
    ///
    /// # Errors
    /// What the copy has failed with.
    pub fn is_over(&self) -> Result<bool, DriverError> {
        self.event.is_past()
    }

    /// Waits, and gives the memory back.
    ///
    /// # Errors
    /// What the copy has failed with; the memory is then leaked, as nobody knows whether it is still written.
    pub fn wait(mut self) -> Result<Pinned, DriverError> {
        let waited = self.event.wait();
        let memory = self.memory.take();
        match (waited, memory) {
            (Ok(()), Some(memory)) => Ok(memory),
            (waited, memory) => {
                std::mem::forget(memory);
                waited.and(Err(DriverError {
                    call: "a wait for a copy",
                    code: sys::CUresult::CUDA_ERROR_INVALID_VALUE,
                }))
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.memory.is_some() && self.event.wait().is_err() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// Whether pieces, as (start in `from`, start in `to`, length), are within both.
fn fit(from: &Memory, to: &Pinned, pieces: &[(usize, usize, usize)]) -> bool {
    pieces.iter().all(|&(start, at, bytes)| {
        let end = start.checked_add(bytes);
        end.is_some_and(|end| end <= from.bytes) && to.piece(at, bytes).is_ok()
    })
}

/// A copy that doesn't fit.
pub(super) const OUT_OF_RANGE: DriverError = DriverError {
    call: "a copy beyond the end of memory",
    code: sys::CUresult::CUDA_ERROR_INVALID_VALUE,
};

impl Stream {
    /// Copies the first `bytes` of pinned memory to the GPU's, from `at` on.
    ///
    /// # Errors
    /// What the driver says.
    pub fn upload(
        &self,
        from: Pinned,
        to: &mut Memory,
        at: usize,
        bytes: usize,
    ) -> Result<InFlight, DriverError> {
        if bytes > from.bytes || at.checked_add(bytes).is_none_or(|end| end > to.bytes) {
            return Err(OUT_OF_RANGE);
        }
        self.device.enter()?;
        let (pointer, address) = (from.pointer.as_ptr(), to.address + at as u64);
        // SAFETY: both have so many bytes, and the pinned ones aren't given back before the event.
        let code =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, pointer.cast(), bytes, self.stream) };
        self.in_flight(from, check("cuMemcpyHtoDAsync", code))
    }

    /// Copies the first `bytes` of memory within the GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy(&self, from: &Memory, to: &mut Memory, bytes: usize) -> Result<(), DriverError> {
        if bytes > from.bytes || bytes > to.bytes {
            return Err(OUT_OF_RANGE);
        }
        self.device.enter()?;
        // SAFETY: both have so many bytes; freeing either waits for the copy.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.address, from.address, bytes, self.stream)
        })
    }

    /// Copies pieces of the GPU's memory, as (start in it, start in the pinned memory, length).
    ///
    /// # Errors
    /// What the driver says.
    pub fn download(
        &self,
        from: &Memory,
        to: Pinned,
        pieces: &[(usize, usize, usize)],
    ) -> Result<InFlight, DriverError> {
        if !fit(from, &to, pieces) {
            return Err(OUT_OF_RANGE);
        }
        // SAFETY: within the memory, which isn't freed before the copy is over.
        unsafe { self.fetch(from.address, to, pieces) }
    }

    /// The same into pinned memory from which a copy is still under way, without a wait between.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// That copy was asked of this stream, which does one after the other.
    pub(super) unsafe fn download_behind(
        &self,
        from: &Memory,
        mut before: InFlight,
        pieces: &[(usize, usize, usize)],
    ) -> Result<InFlight, DriverError> {
        match before.memory.take() {
            Some(to) if fit(from, &to, pieces) => self.download(from, to, pieces),
            to => {
                // It waits when dropped.
                before.memory = to;
                Err(OUT_OF_RANGE)
            }
        }
    }

    /// Copies pieces of what lies behind an address, as (start there, start in the pinned memory, length).
    ///
    /// # Safety
    /// All pieces are there until the copy is over.
    pub(super) unsafe fn fetch(
        &self,
        base: u64,
        to: Pinned,
        pieces: &[(usize, usize, usize)],
    ) -> Result<InFlight, DriverError> {
        self.device.enter()?;
        let copy = |&(start, at, bytes): &(usize, usize, usize)| {
            if bytes == 0 {
                return Ok(());
            }
            let pointer = to.piece(at, bytes)?.as_ptr().cast();
            let source = base + start as u64;
            // SAFETY: both have so many bytes, and the pinned ones aren't given back before the event.
            let code = unsafe { sys::cuMemcpyDtoHAsync_v2(pointer, source, bytes, self.stream) };
            check("cuMemcpyDtoHAsync", code)
        };
        let copied = pieces.iter().try_for_each(copy);
        self.in_flight(to, copied)
    }

    /// The other way: to pieces of what lies behind an address.
    ///
    /// # Safety
    /// All pieces are there until the copy is over, and nobody else uses them.
    pub(super) unsafe fn store(
        &self,
        from: Pinned,
        base: u64,
        pieces: &[(usize, usize, usize)],
    ) -> Result<InFlight, DriverError> {
        self.device.enter()?;
        let copy = |&(start, at, bytes): &(usize, usize, usize)| {
            let pointer = from.piece(at, bytes)?.as_ptr().cast();
            let place = base + start as u64;
            // SAFETY: both have so many bytes, and the pinned ones aren't given back before the event.
            let code = unsafe { sys::cuMemcpyHtoDAsync_v2(place, pointer, bytes, self.stream) };
            check("cuMemcpyHtoDAsync", code)
        };
        let copied = pieces.iter().try_for_each(copy);
        self.in_flight(from, copied)
    }

    fn in_flight(
        &self,
        memory: Pinned,
        begun: Result<(), DriverError>,
    ) -> Result<InFlight, DriverError> {
        match begun.and_then(|()| self.record()) {
            Ok(event) => Ok(InFlight {
                memory: Some(memory),
                event,
            }),
            Err(error) => {
                // Some of it may be under way.
                if self.wait().is_err() {
                    std::mem::forget(memory);
                }
                Err(error)
            }
        }
    }

    /// Fills a piece of memory with zeros.
    ///
    /// # Errors
    /// What the driver says.
    pub fn clear(&self, memory: &mut Memory, from: usize, bytes: usize) -> Result<(), DriverError> {
        if from.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
            return Err(OUT_OF_RANGE);
        }
        self.device.enter()?;
        let address = memory.address + from as u64;
        // SAFETY: within the memory.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(address, 0, bytes, self.stream)
        })
    }
}
