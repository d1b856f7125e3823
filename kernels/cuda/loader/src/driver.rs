//! The CUDA driver, as much of it as is used: each thing that it gives is owned, and given back when dropped.
//!
//! The one module with unsafe code. What keeps it safe for callers: a [`Device`] is only made where the library has every function
//! that is called here; everything that the driver gives holds its device, so that the context outlives it; memory that a copy
//! reads or writes is in an [`InFlight`] until the copy is over; and what a kernel touches is vouched for by whoever launches it
//! ([`Function::launch`] is unsafe to call).
#![expect(unsafe_code, reason = "calls of the CUDA driver and of NVRTC")]

mod mapped;
mod memory;
mod module;
pub(crate) mod nvrtc;
mod registered;
mod stream;
mod trial;
mod units;

use core::fmt;
use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::sys;

pub use mapped::Mapped;
pub use memory::{Imported, InFlight, IpcHandle, Memory, Pinned};
pub use module::{Captured, Function, Module};
pub use registered::Registered;
pub use stream::{Event, Stream};
pub use trial::{Pass, Trial};
pub use units::{Cache, CodeError, GpuCoder, InCache, Place, Placed};

/// A call that the driver has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the CUDA driver refuses {call}: {code:?}")]
pub struct DriverError {
    call: &'static str,
    code: sys::CUresult,
}

impl DriverError {
    /// Whether this was about memory: less may go.
    pub fn is_out_of_memory(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }
}

fn check(call: &'static str, code: sys::CUresult) -> Result<(), DriverError> {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(DriverError { call, code }),
    }
}

/// Every function that this module calls. `cudarc` looks a function up when it is called, and panics where there is none.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// `None` where the driver's library has everything; `Some(None)` where there is no library, otherwise the first function that
/// it lacks.
pub(crate) fn missing_symbol() -> Option<Option<&'static str>> {
    // SAFETY: looks for a library, whose initialisers are those of the system's driver.
    if !unsafe { sys::is_culib_present() } {
        return Some(None);
    }
    // SAFETY: it is there, so that this doesn't panic.
    let library = unsafe { sys::culib() };
    let has = |name: &str| {
        // SAFETY: only asked for, never called by this type.
        unsafe { library.get::<*const ()>(name.as_bytes()) }.is_ok()
    };
    SYMBOLS.iter().copied().find(|name| !has(name)).map(Some)
}

/// Which of the GPUs that a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its number there, which is another in every container.
    Number(u32),
    /// By the number that it has everywhere.
    Uuid(Uuid),
}

/// A GPU, with the context that all of this process shares.
#[derive(Clone, Debug)]
pub struct Device(Arc<Context>);

#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    uuid: Uuid,
    capability: (u32, u32),
}

/// A GPU's number that is the same in every process and container; that of an instance where it is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// As `nvidia-smi -L` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// SAFETY: a context may be made current in any thread, and its functions may be called by several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, in `Device::open`. An error can't be answered any more.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Device {
    /// The wanted one of the GPUs that the process sees; `None` where it is not among them. `missing_symbol` is asked before.
    pub(crate) fn open(wanted: Which) -> Result<Option<Self>, DriverError> {
        // SAFETY: the library has the function; it may be called any number of times.
        match unsafe { sys::cuInit(0) } {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(None),
            code => check("cuInit", code)?,
        }
        let mut count = 0;
        // SAFETY: writes one number.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&raw mut count)
        })?;
        let mut found = None;
        for ordinal in 0..count {
            let mut device = 0;
            // SAFETY: there is one of this number.
            check("cuDeviceGet", unsafe {
                sys::cuDeviceGet(&raw mut device, ordinal)
            })?;
            let uuid = uuid_of(device)?;
            let is_wanted = match wanted {
                Which::Number(number) => i64::from(ordinal) == i64::from(number),
                Which::Uuid(wanted) => uuid == wanted,
            };
            if is_wanted {
                found = Some((device, uuid));
            }
        }
        let Some((device, uuid)) = found else {
            return Ok(None);
        };
        let name = name_of(device)?;
        use sys::CUdevice_attribute as Attribute;
        let major = attribute(
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        )?;
        let minor = attribute(
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the device is there; released when dropped.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })?;
        Ok(Some(Self(Arc::new(Context {
            device,
            context,
            name,
            uuid,
            capability: (major, minor),
        }))))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number by which other processes know it.
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    /// Its compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.0.capability
    }

    /// Makes the context this thread's: before every other call.
    fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context lives as long as `self`.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.0.context)
        })
    }
}

fn uuid_of(device: sys::CUdevice) -> Result<Uuid, DriverError> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: writes 16 bytes.
    check("cuDeviceGetUuid", unsafe {
        sys::cuDeviceGetUuid_v2(&raw mut uuid, device)
    })?;
    Ok(Uuid(uuid.bytes.map(i8::cast_unsigned)))
}

fn name_of(device: sys::CUdevice) -> Result<String, DriverError> {
    let mut name = [0u8; 256];
    // SAFETY: at most 255 bytes and their end are written.
    check("cuDeviceGetName", unsafe {
        sys::cuDeviceGetName(name.as_mut_ptr().cast(), 255, device)
    })?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn attribute(
    device: sys::CUdevice,
    attribute: sys::CUdevice_attribute,
) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: writes one number.
    check("cuDeviceGetAttribute", unsafe {
        sys::cuDeviceGetAttribute(&raw mut value, attribute, device)
    })?;
    Ok(u32::try_from(value).unwrap_or(0))
}
