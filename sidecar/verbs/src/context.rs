//! An open device.
#![expect(unsafe_code, reason = "calls of libibverbs")]

use std::fmt;
use std::io;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use crate::error::CallError;
use crate::gid::{Gid, GidKind};
use crate::library::{Functions, Library, List};

/// A device, open. Cheap to clone; whatever was made with it keeps it open.
#[derive(Clone)]
pub struct Context(Arc<Open>);

struct Open {
    name: String,
    context: NonNull<sys::ibv_context>,
    verbs: Library,
}

// SAFETY: libibverbs' calls on one device may come from any thread, also at the same time.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

/// A place of a port's GID table that is taken.
pub(crate) struct TableEntry {
    pub(crate) index: u8,
    pub(crate) gid: Gid,
    pub(crate) kind: GidKind,
    /// The number of the network interface; 0 is none.
    pub(crate) interface: u32,
}

impl Library {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// Where there is none, or its driver refuses.
    pub fn device(&self, name: &str) -> Result<Context, CallError> {
        let list = List::get(self)?;
        let device = list.devices().find(|(known, _)| known == name);
        let (name, device) = device.ok_or_else(|| CallError {
            what: "find the device",
            source: io::Error::new(io::ErrorKind::NotFound, format!("there is no {name}")),
        })?;
        // SAFETY: a device of a list that is still there.
        let context = unsafe { (self.functions().ibv_open_device)(device) };
        let context = NonNull::new(context).ok_or_else(|| CallError::last("open the device"))?;
        Ok(Context(Arc::new(Open {
            name,
            context,
            verbs: self.clone(),
        })))
    }
}

impl Context {
    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.0.context.as_ptr()
    }

    pub(crate) fn functions(&self) -> &Functions {
        self.0.verbs.functions()
    }

    /// The operations of the device's driver, which are called without libibverbs.
    pub(crate) fn operations(&self) -> &sys::ibv_context_ops {
        // SAFETY: the context is open as long as self, and its operations are written only while it is opened.
        unsafe { &(*self.raw()).ops }
    }

    pub(crate) fn attributes(&self) -> Result<sys::ibv_device_attr, CallError> {
        let mut attributes = sys::ibv_device_attr::default();
        // SAFETY: the device is open, and the attributes are written where the reference points.
        let code = unsafe { (self.functions().ibv_query_device)(self.raw(), &raw mut attributes) };
        CallError::check("ask the device what it can do", code)?;
        Ok(attributes)
    }

    pub(crate) fn port(&self, port: u8) -> Result<sys::ibv_port_attr, CallError> {
        let mut attributes = sys::ibv_port_attr::default();
        let place = (&raw mut attributes).cast();
        // SAFETY: the function writes the attributes that were there when it was declared, a prefix of today's.
        let code = unsafe { (self.functions().ibv_query_port)(self.raw(), port, place) };
        CallError::check("ask the port what it is", code)?;
        Ok(attributes)
    }

    /// Every GID of a port, whose table has `length` places.
    pub(crate) fn table(&self, port: u8, length: i32) -> Vec<TableEntry> {
        let length = u8::try_from(length).unwrap_or(u8::MAX);
        (0..length)
            .filter_map(|index| self.entry(port, index))
            .collect()
    }

    /// None where the place is empty.
    pub(crate) fn entry(&self, port: u8, index: u8) -> Option<TableEntry> {
        let mut entry = sys::ibv_gid_entry::default();
        // SAFETY: the entry is written where the reference points, no more bytes than the last argument says.
        let code = unsafe {
            (self.functions()._ibv_query_gid_ex)(
                self.raw(),
                u32::from(port),
                u32::from(index),
                &raw mut entry,
                0,
                size_of::<sys::ibv_gid_entry>(),
            )
        };
        // SAFETY: every bit pattern is 16 bytes.
        let gid = Gid(unsafe { entry.gid.raw });
        let taken = code == 0 && gid != Gid([0; 16]);
        taken.then(|| TableEntry {
            index,
            gid,
            kind: entry.gid_type.into(),
            interface: entry.ndev_ifindex,
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.name).finish()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: nothing that was made with the device is left: it would hold self. What it returns can't be acted upon.
        unsafe { (self.verbs.functions().ibv_close_device)(self.context.as_ptr()) };
    }
}
