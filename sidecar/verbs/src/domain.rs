//! Protection domains: which queue pairs may use which memory.
#![expect(unsafe_code, reason = "calls of libibverbs")]

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use crate::context::Context;
use crate::error::CallError;

/// A protection domain. Cheap to clone; queue pairs and registered memory keep it.
#[derive(Clone)]
pub struct Domain(Arc<Allocated>);

struct Allocated {
    domain: NonNull<sys::ibv_pd>,
    context: Context,
}

// SAFETY: libibverbs' calls on one domain may come from any thread, also at the same time.
unsafe impl Send for Allocated {}
// SAFETY: as above.
unsafe impl Sync for Allocated {}

impl Domain {
    /// One of the device's.
    ///
    /// # Errors
    /// Where the device has no more.
    pub fn new(context: &Context) -> Result<Self, CallError> {
        // SAFETY: the device is open.
        let domain = unsafe { (context.functions().ibv_alloc_pd)(context.raw()) };
        let domain =
            NonNull::new(domain).ok_or_else(|| CallError::last("make a protection domain"))?;
        Ok(Self(Arc::new(Allocated {
            domain,
            context: context.clone(),
        })))
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.0.domain.as_ptr()
    }

    /// Whether the device's driver registers dma-bufs, the way to the memory of GPUs and others.
    pub fn takes_dma_buf(&self) -> bool {
        const NO_FILE: c_int = -1;
        // SAFETY: no file has this number, so nothing is registered: a driver without dma-bufs says so before it looks.
        let region = unsafe {
            (self.context().functions().ibv_reg_dmabuf_mr)(self.raw(), 0, 0, 0, NO_FILE, 0)
        };
        debug_assert!(region.is_null(), "nothing was registered");
        let error = io::Error::last_os_error();
        !is_unsupported(&error)
    }
}

pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    /// The kernel's own, which isn't for programs; some drivers let it out.
    const ENOTSUPP: c_int = 524;
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOSYS | ENOTSUPP)
    )
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(self.context()).finish()
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: nothing that was made with the domain is left: it would hold self. What it returns can't be acted upon.
        unsafe { (self.context.functions().ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}
