//! What a connection needs of a socket: reads and writes that never wait.

use std::io::{self, IoSlice, IoSliceMut};

use tokio::net::TcpStream;

/// A stream of bytes in both directions. A trait only so that tests can cut the stream where no network would in time.
pub(crate) trait Wire {
    /// Reads what is there; [`io::ErrorKind::WouldBlock`] where nothing is.
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    /// Writes what fits; [`io::ErrorKind::WouldBlock`] where nothing does.
    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Wire for TcpStream {
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.try_read_vectored(into)
    }

    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(from)
    }
}

#[cfg(test)]
mod tests;
