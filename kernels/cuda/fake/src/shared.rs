//! Memory that other processes may map: files in memory, mapped anywhere, or where addresses were reserved.

use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, RawFd};

use crate::state::INVALID_VALUE;

/// As a GPU's.
pub(crate) const GRANULARITY: usize = 2 << 20;

fn pointer(address: u64) -> Result<*mut libc::c_void, u32> {
    let address = usize::try_from(address).map_err(|_| INVALID_VALUE)?;
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

fn done(code: i32) -> Result<(), u32> {
    (code == 0).then_some(()).ok_or(INVALID_VALUE)
}

/// New memory.
pub(crate) fn create(bytes: usize) -> Result<File, u32> {
    // SAFETY: no memory is touched.
    let descriptor = unsafe { libc::memfd_create(c"gpu".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: new, and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(bytes as u64).map_err(|_| INVALID_VALUE)?;
    Ok(file)
}

/// What a descriptor is of, if that is such memory.
pub(crate) fn import(descriptor: u64) -> Result<File, u32> {
    let number = RawFd::try_from(descriptor).map_err(|_| INVALID_VALUE)?;
    let name = std::fs::read_link(format!("/proc/self/fd/{number}")).map_err(|_| INVALID_VALUE)?;
    if !name.to_string_lossy().starts_with("/memfd:gpu") {
        return Err(INVALID_VALUE);
    }
    // SAFETY: it is open, as it has a name.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let owned = borrowed.try_clone_to_owned().map_err(|_| INVALID_VALUE)?;
    Ok(File::from(owned))
}

/// The file of another process's that has this number there.
pub(crate) fn of_process(process: u32, number: i32) -> Result<File, u32> {
    let path = format!("/proc/{process}/fd/{number}");
    let name = std::fs::read_link(&path).map_err(|_| INVALID_VALUE)?;
    if !name.to_string_lossy().starts_with("/memfd:gpu") {
        return Err(INVALID_VALUE);
    }
    let mut options = File::options();
    let file = options.read(true).write(true).open(path);
    file.map_err(|_| INVALID_VALUE)
}

/// Maps all of it.
pub(crate) fn map_anywhere(bytes: usize, file: &File) -> Result<u64, u32> {
    let address = reserve(bytes)?;
    place(address, bytes, libc::MAP_SHARED, file.as_raw_fd())?;
    allow(address, bytes)?;
    Ok(address)
}

/// Writes the same byte everywhere.
pub(crate) fn fill(address: u64, value: u8, bytes: usize) -> Result<(), u32> {
    let start = pointer(address)?.cast::<u8>();
    // SAFETY: mapped, and allowed to be written.
    unsafe { start.write_bytes(value, bytes) };
    Ok(())
}

/// Addresses that nobody else has.
pub(crate) fn reserve(bytes: usize) -> Result<u64, u32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the system chooses the place.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(INVALID_VALUE);
    }
    Ok(start.expose_provenance() as u64)
}

/// Gives them back.
pub(crate) fn free(address: u64, bytes: usize) -> Result<(), u32> {
    // SAFETY: reserved before, and nothing is mapped there.
    done(unsafe { libc::munmap(pointer(address)?, bytes) })
}

/// Puts memory there, which can't be touched yet. It must be as long as that.
pub(crate) fn map(address: u64, bytes: usize, file: &File) -> Result<(), u32> {
    let length = file.metadata().map_err(|_| INVALID_VALUE)?.len();
    if length != bytes as u64 {
        return Err(INVALID_VALUE);
    }
    place(address, bytes, libc::MAP_SHARED, file.as_raw_fd())
}

/// Takes it away again.
pub(crate) fn unmap(address: u64, bytes: usize) -> Result<(), u32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    place(address, bytes, flags, -1)
}

/// Lets it be read and written.
pub(crate) fn allow(address: u64, bytes: usize) -> Result<(), u32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: mapped before.
    done(unsafe { libc::mprotect(pointer(address)?, bytes, protection) })
}

fn place(address: u64, bytes: usize, flags: i32, file: RawFd) -> Result<(), u32> {
    let at = pointer(address)?;
    let flags = flags | libc::MAP_FIXED;
    // SAFETY: the addresses are reserved, so that nothing else lies there.
    let found = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, file, 0) };
    (found == at).then_some(()).ok_or(INVALID_VALUE)
}
