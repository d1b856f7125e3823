//! Registered memory of this process: what is written from, and what a peer writes into.
//!
//! Two types of it and not one, because a device that writes while there is a `&[u8]` breaks what the compiler was promised. [`Staging`] is only
//! ever read by the device, and can be borrowed; a [`Ring`] is written by the peer's, and can only be copied from. [`Lent`] memory is somebody else's, and
//! only read.
#![expect(
    unsafe_code,
    reason = "calls of libibverbs, and memory that a device writes"
)]

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs_sys as sys;
use memmap2::{Advice, MmapMut, MmapRaw};
use sys::ibv_access_flags as Access;

use crate::domain::Domain;
use crate::endpoint::Target;
use crate::error::RegisterError;
use crate::lendable::Lendable;

/// What the device knows of registered memory; forgotten with it.
pub(crate) struct Registration {
    region: NonNull<sys::ibv_mr>,
    domain: Domain,
}

// SAFETY: a registration has no thread; the calls on it may come from any.
unsafe impl Send for Registration {}
// SAFETY: as above; shared, only its keys are read.
unsafe impl Sync for Registration {}

impl Registration {
    /// Of what libibverbs returned; none where that is null.
    pub(crate) fn new(domain: &Domain, region: *mut sys::ibv_mr) -> Option<Self> {
        Some(Self {
            region: NonNull::new(region)?,
            domain: domain.clone(),
        })
    }

    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: registered as long as self; the keys don't change.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// A part of what begins here and has so many bytes; none where it isn't within.
    fn part(&self, start: *const u8, bytes: usize, range: Range<usize>) -> Option<Local<'_>> {
        if range.start > range.end || range.end > bytes {
            return None;
        }
        Some(Local {
            address: start.wrapping_add(range.start).addr() as u64,
            bytes: u32::try_from(range.len()).ok()?,
            registration: self,
        })
    }

    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: it goes once, and before the memory. Work that still names it fails in the device from now on.
        let code =
            unsafe { (self.domain.context().functions().ibv_dereg_mr)(self.region.as_ptr()) };
        debug_assert_eq!(
            code, 0,
            "registered memory without windows is always given back"
        );
    }
}

/// Registers memory.
///
/// # Safety
/// It is mapped, with so many bytes, until the registration has gone.
unsafe fn register(
    domain: &Domain,
    start: *mut c_void,
    bytes: usize,
    access: Access,
) -> Result<Registration, RegisterError> {
    let access = i32::try_from(access.0).unwrap_or_default();
    // SAFETY: the caller vouches for the memory; the domain is there as long as the registration.
    let region =
        unsafe { (domain.context().functions().ibv_reg_mr)(domain.raw(), start, bytes, access) };
    Registration::new(domain, region).ok_or_else(|| RegisterError::last(bytes))
}

/// A mapping, and its registration, which goes first.
struct Mapped {
    registration: Registration,
    mapping: MmapRaw,
}

impl Mapped {
    fn new(domain: &Domain, bytes: usize, access: Access) -> Result<Self, RegisterError> {
        let unmapped = |source| RegisterError::Memory { bytes, source };
        let mapping = MmapMut::map_anon(bytes).map_err(unmapped)?;
        // A child process would otherwise share pages that a device writes, until one of both has them copied.
        mapping.advise(Advice::DontFork).map_err(unmapped)?;
        let mapping = MmapRaw::from(mapping);
        // SAFETY: the mapping has this many bytes, and stays until the registration has gone.
        let registration = unsafe { register(domain, mapping.as_mut_ptr().cast(), bytes, access) }?;
        Ok(Self {
            registration,
            mapping,
        })
    }
}

/// Memory that is written from.
pub struct Staging(Mapped);

impl Staging {
    /// So many bytes of zeroes, registered with the domain's device, which may only read them.
    ///
    /// # Errors
    /// Where there is no memory, the process may not lock so much of it, or the device refuses.
    pub fn new(domain: &Domain, bytes: usize) -> Result<Self, RegisterError> {
        Mapped::new(domain, bytes, Access(0)).map(Self)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.mapping.len()
    }

    /// Whether it has no bytes; it always has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, to be filled. Those that posted work hasn't been completed for are sent as they are when the device reads them: don't
    /// touch them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is of this length, is borrowed as self is, and nobody else writes it.
        unsafe { std::slice::from_raw_parts_mut(self.0.mapping.as_mut_ptr(), self.0.mapping.len()) }
    }

    /// A part of it, to be written to the peer; none where the range isn't within it, or is too long for one write (4 GiB).
    pub fn part(&self, range: Range<usize>) -> Option<Local<'_>> {
        let start = self.0.mapping.as_ptr();
        self.0.registration.part(start, self.len(), range)
    }
}

/// Memory of somebody else's that is written from: it is never touched here.
pub struct Lent {
    registration: Registration,
    memory: Arc<dyn Lendable>,
}

impl Lent {
    /// All of the memory, registered with the domain's device, which may only read it.
    ///
    /// # Errors
    /// Where the process may not lock so much memory, or the device refuses.
    pub fn new(domain: &Domain, memory: &Arc<dyn Lendable>) -> Result<Self, RegisterError> {
        let start = memory.start().cast_mut().cast();
        // SAFETY: its bytes are mapped as long as it lives, which is longer than the registration.
        let registration = unsafe { register(domain, start, memory.bytes(), Access(0)) }?;
        Ok(Self {
            registration,
            memory: Arc::clone(memory),
        })
    }

    /// Where in it these bytes lie; `None` where they don't.
    pub fn find(&self, bytes: &[u8]) -> Option<Range<usize>> {
        self.memory.find(bytes)
    }

    /// A part of it, to be written to the peer; none where the range isn't within it, or is too long for one write (4 GiB).
    pub fn part(&self, range: Range<usize>) -> Option<Local<'_>> {
        let (start, bytes) = (self.memory.start(), self.memory.bytes());
        self.registration.part(start, bytes, range)
    }
}

/// A part of registered memory of this side.
#[derive(Clone, Copy)]
pub struct Local<'a> {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) registration: &'a Registration,
}

/// Memory that a peer writes into, whenever it likes.
pub struct Ring(Mapped);

impl Ring {
    /// So many bytes of zeroes, registered with the domain's device for the writes of peers.
    ///
    /// # Errors
    /// Where there is no memory, the process may not lock so much of it, or the device refuses.
    pub fn new(domain: &Domain, bytes: usize) -> Result<Self, RegisterError> {
        let access = Access::IBV_ACCESS_LOCAL_WRITE | Access::IBV_ACCESS_REMOTE_WRITE;
        Mapped::new(domain, bytes, access).map(Self)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.mapping.len()
    }

    /// Whether it has no bytes; it always has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a peer has to know to write into all of it.
    pub fn target(&self) -> Target {
        Target {
            address: self.0.mapping.as_ptr().addr() as u64,
            bytes: self.len() as u64,
            key: self.0.registration.remote_key(),
        }
    }

    /// Copies bytes out, from `at` on. Those that the peer has announced are as it wrote them; others may be anything, and change.
    ///
    /// # Panics
    /// Where the range isn't within the ring.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        let end = at.checked_add(into.len());
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{} bytes from {at} aren't within a ring of {}",
            into.len(),
            self.len()
        );
        // SAFETY: the end is within the mapping, so its start is.
        let from = unsafe { self.0.mapping.as_ptr().add(at) };
        // SAFETY: both have this many bytes, and `into` is no part of a mapping that nothing else points into. A device may be
        // writing meanwhile: then the copy has old bytes and new ones, each a byte, and nothing here depends on which.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Staging").field(&self.len()).finish()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.memory.bytes()).finish()
    }
}

impl fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Local").field(&self.bytes).finish()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ring").field(&self.len()).finish()
    }
}
