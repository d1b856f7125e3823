//! Memory in which coded units lie until they are sent: the file through which an engine that codes by itself hands them over, or a file of this
//! agent's own, into which its GPU brings them.
#![expect(
    unsafe_code,
    reason = "memory shared with the engine's process: whose a piece of it is, is known here"
)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lynx_transport::rdma::Lendable;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::mapping::Mapping;
use super::room::Room;

/// The file, and which bytes of it are in use.
#[derive(Debug)]
pub(super) struct Staging {
    mapping: Mapping,
    room: Mutex<Room>,
}

/// A piece of the file, until it is dropped: nobody else's of this process, and the engine's while it is asked for something.
#[derive(Debug)]
pub(super) struct Slot {
    staging: Arc<Staging>,
    start: usize,
    bytes: usize,
}

/// Bytes of a segment: this process's own, or in the file where an engine has coded them.
pub struct Piece(Bytes);

enum Bytes {
    Own(Vec<u8>),
    Lent(Arc<Slot>, Range<usize>),
}

impl Staging {
    /// The first `bytes` bytes of a file are mapped.
    pub(super) fn new(mapping: Mapping, bytes: usize) -> Self {
        let room = Mutex::new(Room::new(bytes));
        Self { mapping, room }
    }

    /// So many bytes of nobody else's.
    pub(super) fn own(bytes: usize) -> io::Result<Self> {
        let file = File::from(memfd_create("lynx-segments", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, bytes as u64)?;
        Ok(Self::new(Mapping::new(&file, bytes, true)?, bytes))
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Whether a piece of so many bytes is free.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.room().has(bytes)
    }

    /// A piece of so many bytes.
    pub(super) fn slot(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        let start = self.room().take(bytes)?;
        Some(Slot {
            staging: Arc::clone(self),
            start,
            bytes,
        })
    }
}

// SAFETY: the mapping has these bytes for as long as it lives, which is as long as self.
unsafe impl Lendable for Staging {
    fn start(&self) -> *const u8 {
        self.mapping.start()
    }

    fn bytes(&self) -> usize {
        self.mapping.len()
    }
}

impl Slot {
    /// Where in the file it is.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// All of it, to be filled.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as below, and nobody reads: this is the only reference to the piece, of which nobody has been told.
        unsafe { self.staging.mapping.bytes_mut(self.start, self.bytes) }
    }

    /// Gives back what lies behind this place in the file.
    pub(super) fn end_at(&mut self, end: usize) {
        self.bytes = end.saturating_sub(self.start).min(self.bytes);
        self.staging.room().shrink(self.start, self.bytes);
    }

    /// What the engine has left at this place in the file; nothing outside of the piece.
    pub(super) fn read(&self, range: &Range<usize>) -> &[u8] {
        let own = self.range();
        if range.start < own.start || range.end > own.end || range.is_empty() {
            return &[];
        }
        // SAFETY: the range is this piece's: the room has given it to nobody else of this process, nobody writes through a shared
        // reference to it, and the engine has answered, after which the bytes are the agent's (rule 7).
        unsafe { self.staging.mapping.bytes(range.start, range.len()) }
    }

    /// Puts bytes at this place in the file, which is within the piece; otherwise nowhere.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let own = self.range();
        if at < own.start || at + bytes.len() > own.end || bytes.is_empty() {
            return;
        }
        // SAFETY: as above, and nobody reads: this is the only reference to the piece, which the engine hasn't been told of.
        let place = unsafe { self.staging.mapping.bytes_mut(at, bytes.len()) };
        place.copy_from_slice(bytes);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.staging.room().give_back(self.start);
    }
}

impl Piece {
    /// Bytes that lie at this place in the file, within the slot.
    pub(super) fn lent(slot: &Arc<Slot>, range: Range<usize>) -> Self {
        Self(Bytes::Lent(Arc::clone(slot), range))
    }

    /// The bytes; copied where they lie in the file.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(slot, range) => slot.read(&range).to_vec(),
        }
    }

    /// Whether they lie in the file.
    #[cfg(test)]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0, Bytes::Lent(..))
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Own(bytes))
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(slot, range) => slot.read(range),
        }
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}
