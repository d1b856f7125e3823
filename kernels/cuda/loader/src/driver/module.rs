//! Machine code, launches, and launches that are recorded once and repeated.

use std::ffi::{CString, c_void};

use cudarc::driver::sys;

use super::{Device, DriverError, Stream, check};

/// Loaded machine code.
#[derive(Debug)]
pub struct Module {
    device: Device,
    module: sys::CUmodule,
}

// SAFETY: a module may be used by any thread.
unsafe impl Send for Module {}
// SAFETY: by several at once too.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin.
    ///
    /// # Errors
    /// Where it is none, or for another GPU.
    pub fn load(device: &Device, code: &[u8]) -> Result<Self, DriverError> {
        device.enter()?;
        // The driver takes an ELF file, whose headers say how long it is, or a text with an end. A copy at an aligned address:
        // it reads structures of it.
        let mut words = vec![0u64; code.len() / 8 + 1];
        for (word, bytes) in words.iter_mut().zip(code.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let mut module = std::ptr::null_mut();
        // SAFETY: the code is there, with zeros behind it; unloaded when dropped.
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&raw mut module, words.as_ptr().cast())
        })?;
        Ok(Self {
            device: device.clone(),
            module,
        })
    }

    /// A kernel of it.
    ///
    /// # Errors
    /// Where it has none of this name.
    pub fn function(&self, name: &str) -> Result<Function<'_>, DriverError> {
        self.device.enter()?;
        let name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is there, and outlives what is returned.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut function, self.module, name.as_ptr())
        })?;
        Ok(Function {
            module: self,
            function,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: loaded once. Launches of its kernels were waited for: they hold memory that is waited for when freed.
            unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    module: &'a Module,
    function: sys::CUfunction,
}

impl Function<'_> {
    /// Launches the kernel with `first` and the address of its units, which is what all of Lynx's kernels take.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// `first` is what the kernel takes first; there are as many units at `units` as the grid says; memory that they name is there,
    /// as large as the plan says, until the stream has come past the launch, and nothing else writes it meanwhile.
    pub unsafe fn launch<T>(
        &self,
        stream: &Stream,
        (grid, threads): ([u32; 3], u32),
        first: &T,
        units: u64,
    ) -> Result<(), DriverError> {
        self.module.device.enter()?;
        let mut arguments: [*mut c_void; 2] = [
            std::ptr::from_ref(first).cast_mut().cast(),
            std::ptr::from_ref(&units).cast_mut().cast(),
        ];
        // SAFETY: the driver copies the arguments before it returns; the caller vouches for what they mean.
        let code = unsafe {
            sys::cuLaunchKernel(
                self.function,
                grid[0],
                grid[1],
                grid[2],
                threads,
                1,
                1,
                0,
                stream.stream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", code)
    }
}

/// Launches that were recorded: repeating them is one call, whatever their number.
#[derive(Debug)]
pub struct Captured {
    device: Device,
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

// SAFETY: may be used by any thread, by one at a time.
unsafe impl Send for Captured {}

impl Captured {
    /// Records what `record` asks of the stream, without doing it.
    ///
    /// # Errors
    /// What `record` fails with, or the driver.
    pub fn record<E: From<DriverError>>(
        stream: &Stream,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        stream.device.enter()?;
        use sys::CUstreamCaptureMode_enum as Mode;
        // SAFETY: the stream is there.
        check("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(stream.stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        })?;
        let recorded = record();
        let mut graph = std::ptr::null_mut();
        // SAFETY: capture has begun, and ends in any case.
        let ended = check("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(stream.stream, &raw mut graph)
        });
        recorded?;
        ended?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is there; both are destroyed when dropped.
        let made = check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)
        });
        let captured = Self {
            device: stream.device.clone(),
            graph,
            executable,
        };
        made?;
        Ok(captured)
    }

    /// Does what was recorded.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// What was true of each launch when it was recorded is still true.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<(), DriverError> {
        self.device.enter()?;
        // SAFETY: the caller vouches for the memory.
        check("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.executable, stream.stream)
        })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.executable.is_null() {
            // SAFETY: made once; the driver waits for a launch of it.
            unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
        // SAFETY: made once.
        unsafe { sys::cuGraphDestroy(self.graph) };
    }
}
