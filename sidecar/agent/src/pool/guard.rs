//! Pages of a pool that are not there any more.
//!
//! An engine may cut its pool's file short while it is attached, and a file system may have no page left to give: then a
//! touch of the mapping raises SIGBUS, which ends a process. Here the signal's handler puts empty memory where the mapping
//! was, and notes that the pool is lost; whoever has read or written asks afterwards and throws away what it made. Why not
//! seals (`F_SEAL_SHRINK`), which would rule the first case out: only a memfd takes them, and a pool is a file with a name
//! in a directory that two containers mount; to hand over a descriptor instead, gRPC has no means. Nor do they rule out the
//! second case. Why not ask for the file's length before each use: it may change after the answer.
#![expect(
    unsafe_code,
    reason = "a signal's handler, and memory put where a mapping was"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings that are guarded at a time: one for each engine that is attached, or was and still has work under way.
const MOST: usize = 256;

/// What the handler looks through: it may neither wait nor allocate.
static SLOTS: [Slot; MOST] = [const { Slot::free() }; MOST];

/// What SIGBUS did before: Rust's own handler for stacks that overflow, or a test harness's.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of memory.
#[derive(Debug)]
struct Slot {
    /// Null where it is free.
    start: AtomicPtr<c_void>,
    len: AtomicUsize,
    lost: AtomicBool,
}

/// A mapping that may lose its pages, until this is dropped: before the mapping is.
#[derive(Debug)]
pub(super) struct Guard(&'static Slot);

impl Slot {
    const fn free() -> Self {
        Self {
            start: AtomicPtr::new(ptr::null_mut()),
            len: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
        }
    }

    fn holds(&self, address: *mut c_void) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let offset = address.addr().checked_sub(start.addr());
        !start.is_null() && offset.is_some_and(|offset| offset < self.len.load(Ordering::Relaxed))
    }
}

impl Guard {
    /// Guards the `len` bytes from `start` on, which are a shared mapping of a file, and whole pages of it.
    ///
    /// # Errors
    /// The system lets no handler in, or too many pools are mapped.
    pub(super) fn new(start: *mut u8, len: usize) -> io::Result<Self> {
        static ADDING: Mutex<()> = Mutex::new(());
        let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        install()?;
        let mut free = SLOTS
            .iter()
            .filter(|slot| slot.start.load(Ordering::Acquire).is_null());
        let slot = free
            .next()
            .ok_or_else(|| io::Error::other("too many pools are mapped"))?;
        slot.len.store(len, Ordering::Relaxed);
        slot.lost.store(false, Ordering::Relaxed);
        slot.start.store(start.cast(), Ordering::Release);
        Ok(Self(slot))
    }

    /// Whether a page was not there when it was touched. From then on the mapping is empty memory of this process alone.
    pub(super) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Lets the handler in, once.
fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: all zeros are a `sigaction`: the default action, an empty mask, no flags.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the signal exists, nothing is changed, and `before` is room for what is told.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut handler = before;
    handler.sa_sigaction = on_signal as *const () as usize;
    // On the stack that Rust gives to signals, where there is one.
    handler.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // Before the handler is there, which passes on to it.
    BEFORE.get_or_init(|| before);
    // SAFETY: the handler has the signature of SA_SIGINFO, and calls only what a handler may: see there.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const handler, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What comes with SIGBUS. It only reads atomics and calls the system.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system hands a handler of SA_SIGINFO what is known of the signal, valid until it returns.
    let known = unsafe { &*info };
    // A page that can't be had; a broken memory module, or a signal that somebody sent, is nothing to go on after.
    if known.si_code == libc::BUS_ADRERR {
        // SAFETY: with this code it is a fault, which has an address.
        let address = unsafe { known.si_addr() };
        let slot = SLOTS.iter().find(|slot| slot.holds(address));
        if slot.is_some_and(replace) {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Puts empty memory in place of a mapping; whether that worked.
fn replace(slot: &Slot) -> bool {
    slot.lost.store(true, Ordering::Release);
    let (start, len) = (
        slot.start.load(Ordering::Acquire),
        slot.len.load(Ordering::Relaxed),
    );
    // SAFETY: the C library has the thread's error number at a place of its own.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *error };
    // SAFETY: the range is a mapping of this process's own, whose owner unmaps it only after its guard is gone; the thread
    // that has faulted is using it, so it is there. Whoever has references into it sees other values, as it could of a file
    // that another process writes.
    let empty = unsafe {
        libc::mmap(
            start,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    // SAFETY: as above: what was interrupted finds the number that it had.
    unsafe { *error = before };
    empty != libc::MAP_FAILED
}

/// Does what would have been done without this module.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().copied();
    let action = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let has_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        // SAFETY: the signal exists, and this is its default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // The fault, or this, ends the process once the handler has returned.
        // SAFETY: raising a signal is what a handler may do.
        unsafe { libc::raise(signal) };
    } else if has_info {
        // SAFETY: it is neither of the two constants, and was installed as a handler of SA_SIGINFO.
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(action) };
        handler(signal, info, context);
    } else {
        // SAFETY: it is neither of the two constants, and was installed as a plain handler.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(action) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests;
