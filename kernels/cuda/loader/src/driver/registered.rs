//! Host memory of somebody else's, into which the GPU copies without a detour: a file that an engine and its agent map.

use cudarc::driver::sys;

use super::{Device, DriverError, Memory, Stream, check};

/// Memory that is pinned where it lies, and stays its owner's.
#[derive(Debug)]
pub struct Registered {
    device: Device,
    address: usize,
    bytes: usize,
}

impl Registered {
    /// Pins `bytes` bytes.
    ///
    /// # Errors
    /// Where the system or the driver can't: of memory that isn't there, of a file that isn't of memory, or of what is pinned already.
    ///
    /// # Safety
    /// They stay mapped as long as this value.
    pub unsafe fn new(
        device: &Device,
        pointer: *mut u8,
        bytes: usize,
    ) -> Result<Self, DriverError> {
        device.enter()?;
        const PORTABLE: u32 = 1;
        // SAFETY: the caller vouches for the memory; unregistered when dropped.
        check("cuMemHostRegister", unsafe {
            sys::cuMemHostRegister_v2(pointer.cast(), bytes, PORTABLE)
        })?;
        Ok(Self {
            device: device.clone(),
            address: pointer.expose_provenance(),
            bytes,
        })
    }

    /// How many bytes it has.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all of these bytes are in it.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr().checked_sub(self.address);
        let end = start.and_then(|start| start.checked_add(bytes.len()));
        end.is_some_and(|end| end <= self.bytes)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            let pointer = std::ptr::with_exposed_provenance_mut(self.address);
            // SAFETY: registered once, and no copy is under way: `Stream::bring` waits for its own.
            unsafe { sys::cuMemHostUnregister(pointer) };
        }
    }
}

impl Stream {
    /// Copies pieces of the GPU's memory, as (start in it, start in `to`, length), and waits until they are there.
    ///
    /// # Errors
    /// Where `to` isn't registered memory, a piece isn't within both, or the driver refuses; some may have been copied.
    pub fn bring(
        &self,
        from: &Memory,
        (registered, to): (&Registered, &mut [u8]),
        pieces: &[(usize, usize, usize)],
    ) -> Result<(), DriverError> {
        let fits = |&(start, at, bytes): &(usize, usize, usize)| {
            let ends = start.checked_add(bytes).zip(at.checked_add(bytes));
            ends.is_some_and(|(from_end, to_end)| from_end <= from.bytes() && to_end <= to.len())
        };
        if !registered.has(to) || !pieces.iter().all(fits) {
            return Err(super::memory::OUT_OF_RANGE);
        }
        self.device.enter()?;
        let copied = pieces.iter().filter(|(.., bytes)| *bytes > 0);
        let copied = copied.into_iter().try_for_each(|&(start, at, bytes)| {
            let place = to[at..].as_mut_ptr().cast();
            let source = from.address() + start as u64;
            // SAFETY: both have so many bytes; those of `to` are borrowed until the copy is over, the others freed after it.
            let code = unsafe { sys::cuMemcpyDtoHAsync_v2(place, source, bytes, self.stream) };
            check("cuMemcpyDtoHAsync", code)
        });
        // Whatever was begun is over before `to` is its owner's again.
        let waited = self.wait();
        copied.and(waited)
    }
}
