//! libibverbs, found at run time.
#![expect(unsafe_code, reason = "functions of another library")]

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::io;
use std::sync::Arc;

use ibverbs_sys as sys;

use crate::error::CallError;

/// The name that a program linked with libibverbs would ask for. Its interface has been the same since 2006; functions were added.
const NAME: &str = "libibverbs.so.1";

/// libibverbs can't be used on this machine.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It isn't there, or can't be loaded.
    #[error(
        "RDMA needs {NAME}, which can't be loaded: install it (on Debian and Ubuntu: libibverbs1 and ibverbs-providers), or use TCP"
    )]
    Missing(#[source] libloading::Error),
    /// It is too old.
    #[error("RDMA needs a newer {NAME}: install that of rdma-core 34 or later, or use TCP")]
    Old(#[source] libloading::Error),
}

/// libibverbs, loaded. Cheap to clone; whatever was opened through it keeps it.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

/// The functions, and what holds them.
pub(crate) struct Loaded {
    pub(crate) functions: Functions,
    _library: libloading::Library,
}

impl Library {
    /// Loads the library of this machine.
    ///
    /// # Errors
    /// Where it is missing, or older than rdma-core 34 (2021).
    pub fn open() -> Result<Self, LibraryError> {
        Self::named(NAME)
    }

    fn named(name: &str) -> Result<Self, LibraryError> {
        // SAFETY: initialising libibverbs has no preconditions: it reads its configuration.
        let library = unsafe { libloading::Library::new(name) }.map_err(LibraryError::Missing)?;
        let functions = Functions::find(&library).map_err(LibraryError::Old)?;
        Ok(Self(Arc::new(Loaded {
            functions,
            _library: library,
        })))
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.0.functions
    }

    /// The names of all devices, such as `mlx5_0`. None where the kernel has no RDMA at all.
    ///
    /// # Errors
    /// What libibverbs says otherwise.
    pub fn names(&self) -> Result<Vec<String>, CallError> {
        match List::get(self) {
            Ok(list) => Ok(list.devices().map(|(name, _)| name).collect()),
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

/// libibverbs' list of devices.
pub(crate) struct List<'a> {
    verbs: &'a Library,
    list: *mut *mut sys::ibv_device,
    count: usize,
}

impl<'a> List<'a> {
    pub(crate) fn get(library: &'a Library) -> Result<Self, CallError> {
        let mut count = 0;
        // SAFETY: the number is written where the reference points.
        let list = unsafe { (library.functions().ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(CallError::last("list the RDMA devices"));
        }
        Ok(Self {
            verbs: library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// Each device's name and handle, which is good as long as the list.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (String, *mut sys::ibv_device)> {
        (0..self.count).map(|index| {
            // SAFETY: the list has this many entries.
            let entry = unsafe { self.list.add(index) };
            // SAFETY: the list lives as long as self.
            let device = unsafe { *entry };
            // SAFETY: a device of the list; its name is an array in it.
            let name = unsafe { &(*device).name };
            let bytes: Vec<u8> = name
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| c.cast_unsigned())
                .collect();
            (String::from_utf8_lossy(&bytes).into_owned(), device)
        })
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        // SAFETY: it came from ibv_get_device_list, and goes once. Opened devices stay.
        unsafe { (self.verbs.functions().ibv_free_device_list)(self.list) };
    }
}

/// Looks each function up by its name; that it is declared like this is checked by the compiler against ibverbs-sys, whose
/// declaration is not linked with: a constant that nothing reads makes no code.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that this crate calls.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        $(const _: unsafe extern "C" fn($($argument),*) $(-> $result)? = sys::$name;)*

        impl Functions {
            fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: libibverbs' function of this name has this type, as its header says.
                    $($name: *unsafe { library.get(stringify!($name).as_bytes()) }?,)*
                })
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut sys::ibv_device;
    ibv_free_device_list: fn(*mut *mut sys::ibv_device);
    ibv_open_device: fn(*mut sys::ibv_device) -> *mut sys::ibv_context;
    ibv_close_device: fn(*mut sys::ibv_context) -> c_int;
    ibv_query_device: fn(*mut sys::ibv_context, *mut sys::ibv_device_attr) -> c_int;
    ibv_query_port: fn(*mut sys::ibv_context, u8, *mut sys::_compat_ibv_port_attr) -> c_int;
    _ibv_query_gid_ex: fn(*mut sys::ibv_context, u32, u32, *mut sys::ibv_gid_entry, u32, usize) -> c_int;
    ibv_alloc_pd: fn(*mut sys::ibv_context) -> *mut sys::ibv_pd;
    ibv_dealloc_pd: fn(*mut sys::ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut sys::ibv_pd, *mut c_void, usize, c_int) -> *mut sys::ibv_mr;
    ibv_reg_dmabuf_mr: fn(*mut sys::ibv_pd, u64, usize, u64, c_int, c_int) -> *mut sys::ibv_mr;
    ibv_dereg_mr: fn(*mut sys::ibv_mr) -> c_int;
    ibv_create_comp_channel: fn(*mut sys::ibv_context) -> *mut sys::ibv_comp_channel;
    ibv_destroy_comp_channel: fn(*mut sys::ibv_comp_channel) -> c_int;
    ibv_create_cq: fn(*mut sys::ibv_context, c_int, *mut c_void, *mut sys::ibv_comp_channel, c_int) -> *mut sys::ibv_cq;
    ibv_destroy_cq: fn(*mut sys::ibv_cq) -> c_int;
    ibv_get_cq_event: fn(*mut sys::ibv_comp_channel, *mut *mut sys::ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut sys::ibv_cq, c_uint);
    ibv_create_qp: fn(*mut sys::ibv_pd, *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp;
    ibv_destroy_qp: fn(*mut sys::ibv_qp) -> c_int;
    ibv_modify_qp: fn(*mut sys::ibv_qp, *mut sys::ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp: fn(*mut sys::ibv_qp, *mut sys::ibv_qp_attr, c_int, *mut sys::ibv_qp_init_attr) -> c_int;
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_machine_without_the_library_is_told_so_in_a_sentence() {
        let error = Library::named("libnoverbs.so.1").unwrap_err();
        assert!(matches!(error, LibraryError::Missing(_)));
        assert!(error.to_string().contains("install it"), "{error}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains("libnoverbs.so.1"), "{source}");
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let error = Library::named("libc.so.6").unwrap_err();
        assert!(matches!(error, LibraryError::Old(_)), "{error}");
    }
}
