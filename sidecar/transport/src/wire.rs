//! What a connection needs of a socket: reads and writes that never wait.

use std::io::{self, IoSlice, IoSliceMut};

use bytes::Bytes;

/// A stream of bytes in both directions. A trait only so that tests can cut the stream where no network would in time.
pub(crate) trait Wire {
    /// Reads what is there; [`io::ErrorKind::WouldBlock`] where nothing is.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    /// Writes what fits; [`io::ErrorKind::WouldBlock`] where nothing does.
    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize>;
    /// The same with payload behind that, which may stay where it is for as long as it takes to be sent.
    fn write_chunk(
        &mut self,
        [control, header]: [IoSlice<'_>; 2],
        payload: &Bytes,
    ) -> io::Result<usize> {
        self.write(&[control, header, IoSlice::new(payload)])
    }
    /// Gives the system what was taken by [`write`](Self::write) and isn't with it yet;
    /// [`io::ErrorKind::WouldBlock`] where some of it stays.
    fn flush(&mut self) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
