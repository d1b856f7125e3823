//! The memory that an engine and this agent share.
//!
//! Another process writes here. What makes references into it sound is not the type system but the rules at the top of
//! `engine.proto`, so references are as short as can be: one tile, while the codec works on it.
#![expect(
    unsafe_code,
    reason = "memory shared with the engine's process, under the engine API's rules"
)]

use std::fs::File;
use std::io;
use std::slice;

use memmap2::{MmapOptions, MmapRaw};

use super::guard::Guard;

/// A mapped file of 2-byte elements.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Dropped before what it guards.
    guard: Guard,
    map: MmapRaw,
    writable: bool,
}

impl Mapping {
    /// Maps the first `bytes` of `file`, which must be that long.
    pub(super) fn new(file: &File, bytes: usize, writable: bool) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        let map = if writable {
            options.map_raw(file)?
        } else {
            options.map_raw_read_only(file)?
        };
        let guard = Guard::new(map.as_mut_ptr(), map.len())?;
        Ok(Self {
            guard,
            map,
            writable,
        })
    }

    /// Its first byte.
    pub(super) fn start(&self) -> *const u8 {
        self.map.as_ptr()
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether a page was missing when it was touched. What was read since is worth nothing, and what was written is nowhere.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// `count` elements from element `start` on.
    ///
    /// # Safety
    /// While the reference lives, nobody writes to these elements: not this process, and by the engine API's rules not the
    /// engine.
    ///
    /// # Panics
    /// Where the range reaches past the mapping.
    pub(super) unsafe fn read(&self, start: usize, count: usize) -> &[u16] {
        self.assert_within(start, count);
        // SAFETY: the range is within the mapping, so the offset is within one allocation.
        let first = unsafe { self.map.as_ptr().cast::<u16>().add(start) };
        // SAFETY: the range is within the mapping, which lives as long as `self`; it begins at a page and the offset counts
        // elements, so it is aligned; every bit pattern is a u16; nobody writes, as the caller promises. Where a page of the
        // file is missing, the guard puts an empty one there.
        unsafe { slice::from_raw_parts(first, count) }
    }

    /// `count` elements from element `start` on, to be written.
    ///
    /// # Safety
    /// While the reference lives, nobody else reads or writes these elements: not this process, and by the engine API's rules
    /// not the engine.
    ///
    /// # Panics
    /// Where the range reaches past the mapping, or the mapping is only to be read.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is not the mapping's own: the caller answers for exclusiveness"
    )]
    pub(super) unsafe fn write(&self, start: usize, count: usize) -> &mut [u16] {
        self.assert_within(start, count);
        assert!(self.writable, "the pool is mapped for reading");
        // SAFETY: the range is within the mapping, so the offset is within one allocation.
        let first = unsafe { self.map.as_mut_ptr().cast::<u16>().add(start) };
        // SAFETY: as for `read`, and the pages are writable; nobody else has a reference, as the caller promises.
        unsafe { slice::from_raw_parts_mut(first, count) }
    }

    /// `count` bytes from byte `start` on.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    ///
    /// # Panics
    /// Where the range reaches past the mapping.
    pub(super) unsafe fn bytes(&self, start: usize, count: usize) -> &[u8] {
        self.assert_bytes(start, count);
        // SAFETY: the range is within the mapping, so the offset is within one allocation.
        let first = unsafe { self.map.as_ptr().add(start) };
        // SAFETY: as for `read`; bytes are always aligned.
        unsafe { slice::from_raw_parts(first, count) }
    }

    /// `count` bytes from byte `start` on, to be written.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    ///
    /// # Panics
    /// Where the range reaches past the mapping, or the mapping is only to be read.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is not the mapping's own: the caller answers for exclusiveness"
    )]
    pub(super) unsafe fn bytes_mut(&self, start: usize, count: usize) -> &mut [u8] {
        self.assert_bytes(start, count);
        assert!(self.writable, "the file is mapped for reading");
        // SAFETY: the range is within the mapping, so the offset is within one allocation.
        let first = unsafe { self.map.as_mut_ptr().add(start) };
        // SAFETY: as for `write`; bytes are always aligned.
        unsafe { slice::from_raw_parts_mut(first, count) }
    }

    fn assert_within(&self, start: usize, count: usize) {
        let end = start.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.map.len() / 2),
            "elements {start} and {count} more are past the pool's end"
        );
    }

    fn assert_bytes(&self, start: usize, count: usize) {
        let end = start.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.map.len()),
            "bytes {start} and {count} more are past the file's end"
        );
    }
}
