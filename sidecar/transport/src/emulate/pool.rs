//! Memory that is lent to cards, for tests of who may use a piece of it again, and when.
#![expect(
    unsafe_code,
    reason = "pieces of memory that are used again: whose one is, is known here"
)]

use std::cell::UnsafeCell;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SharedBytes;
use crate::rdma::Lendable;

/// What is left in a piece that was given back: who reads it late has this.
const SPOILT: u8 = 0xee;

/// Pieces of equal length, each of which is somebody's or free.
#[derive(Debug)]
pub struct LentPool {
    bytes: Box<[UnsafeCell<u8>]>,
    piece: usize,
    /// Numbers of pieces that are free.
    free: Mutex<Vec<usize>>,
}

// SAFETY: a piece's bytes are written by whoever has its number, which is in `free` or with one owner, and read by him, and by the model's
// cards as long as he holds it.
unsafe impl Sync for LentPool {}

// SAFETY: the box keeps its bytes where they are, as long as the pool.
unsafe impl Lendable for LentPool {
    fn start(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// What lies there, as a card reads it.
///
/// # Panics
/// Where the range isn't within the memory.
pub(super) fn read(memory: &dyn Lendable, range: Range<usize>) -> Vec<u8> {
    assert!(
        range.end <= memory.bytes(),
        "a read outside of what is lent"
    );
    let mut bytes = Vec::with_capacity(range.len());
    for at in range {
        // SAFETY: within the memory, so within one allocation.
        let byte = unsafe { memory.start().add(at) };
        // SAFETY: mapped as long as the memory lives. Whoever has a write of it under way holds the piece; where a link gave it
        // back too early, which tests are to find, this reads a byte that is being written, as a card would.
        bytes.push(unsafe { byte.read_volatile() });
    }
    bytes
}

/// A piece, until it is dropped.
#[derive(Debug)]
struct Piece {
    pool: Arc<LentPool>,
    number: usize,
}

impl LentPool {
    /// So many pieces of so many bytes.
    pub fn new(pieces: usize, piece: usize) -> Arc<Self> {
        let bytes = (0..pieces * piece).map(|_| UnsafeCell::new(SPOILT));
        Arc::new(Self {
            bytes: bytes.collect(),
            piece,
            free: Mutex::new((0..pieces).collect()),
        })
    }

    /// The first so many bytes of a piece, as `fill` leaves them; none where all pieces are taken.
    pub fn take(
        self: &Arc<Self>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<SharedBytes> {
        let mut piece = Piece {
            number: self.numbers().pop()?,
            pool: Arc::clone(self),
        };
        fill(piece.bytes_mut().get_mut(..bytes)?);
        Some(SharedBytes::from_owner(piece).slice(..bytes))
    }

    /// How many pieces are free.
    pub fn free(&self) -> usize {
        self.numbers().len()
    }

    fn numbers(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Piece {
    fn start(&self) -> *mut u8 {
        let first = self.number * self.pool.piece;
        let cell = &self.pool.bytes[first..first + self.pool.piece];
        cell.as_ptr().cast_mut().cast()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the piece is within the pool, and its number is with nobody else; what a cell holds may be written through it.
        unsafe { slice::from_raw_parts_mut(self.start(), self.pool.piece) }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as above, and nobody writes as long as self is borrowed.
        unsafe { slice::from_raw_parts(self.start(), self.pool.piece) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.bytes_mut().fill(SPOILT);
        self.pool.numbers().push(self.number);
    }
}
