//! Where a pool's rows lie: in this process's own memory, or in a file that another process maps too.
//!
//! A mapped file is handed out in pieces no larger than what was asked for, and never as a whole: a reference to all of it
//! would claim that nobody writes any of it, and somebody does.
#![expect(
    unsafe_code,
    reason = "a mapping that another process writes has no safe slices; this module hands out those that nobody writes"
)]

use core::slice;
use std::fs::File;
use std::io;

use memmap2::{MmapOptions, MmapRaw};

use crate::BLOCK_TOKENS;

/// 64 values: what the kernels read at a time.
pub(super) type Row = [u16; BLOCK_TOKENS];

/// All rows of a pool.
#[derive(Debug)]
pub(super) enum Storage {
    Own(Vec<Row>),
    Shared(Shared),
}

/// Rows in a file.
#[derive(Debug)]
pub(super) struct Shared {
    map: MmapRaw,
    rows: usize,
}

impl Storage {
    /// Zeroed rows.
    pub(super) fn own(rows: usize) -> Self {
        Self::Own(vec![[0; BLOCK_TOKENS]; rows])
    }

    /// Rows in a file that is long enough for them.
    pub(super) fn shared(file: &File, rows: usize) -> io::Result<Self> {
        let map = MmapOptions::new()
            .len(rows * size_of::<Row>())
            .map_raw(file)?;
        Ok(Self::Shared(Shared { map, rows }))
    }

    /// The rows' size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let rows = match self {
            Self::Own(rows) => rows.len(),
            Self::Shared(shared) => shared.rows,
        };
        rows * size_of::<Row>()
    }

    /// # Panics
    /// If there are no such rows.
    #[inline]
    pub(super) fn rows(&self, start: usize, count: usize) -> &[Row] {
        match self {
            Self::Own(rows) => &rows[start..start + count],
            Self::Shared(shared) => shared.rows(start, count),
        }
    }

    /// # Panics
    /// If there are no such rows.
    #[inline]
    pub(super) fn rows_mut(&mut self, start: usize, count: usize) -> &mut [Row] {
        match self {
            Self::Own(rows) => &mut rows[start..start + count],
            Self::Shared(shared) => shared.rows_mut(start, count),
        }
    }

    /// Copies `count` rows to another place, which may overlap.
    ///
    /// # Panics
    /// If there are no such rows.
    pub(super) fn copy(&mut self, from: usize, to: usize, count: usize) {
        match self {
            Self::Own(rows) => rows.copy_within(from..from + count, to),
            Self::Shared(shared) => shared.copy(from, to, count),
        }
    }
}

impl Shared {
    #[inline]
    fn rows(&self, start: usize, count: usize) -> &[Row] {
        let first = self.at(start, count);
        // SAFETY: `at` has checked that these rows lie in the mapping, which lives as long as `self`. They are aligned,
        // since a mapping begins at a page and a row's alignment is 2, and any bits are a `u16`. This process writes them
        // only through `&mut self`. The other process writes a request's blocks only while the request is held
        // (`Engine::hold`), when no step reads them and no view of them is made, and otherwise only reads.
        unsafe { slice::from_raw_parts(first, count) }
    }

    #[inline]
    fn rows_mut(&mut self, start: usize, count: usize) -> &mut [Row] {
        let first = self.at(start, count);
        // SAFETY: as in `rows`; and the other process reads only what was published to it, which is not written again
        // before it has given it up.
        unsafe { slice::from_raw_parts_mut(first, count) }
    }

    fn copy(&mut self, from: usize, to: usize, count: usize) {
        let (from, to) = (self.at(from, count), self.at(to, count));
        // SAFETY: as in `rows` and `rows_mut`; `copy` takes places that overlap.
        unsafe { from.copy_to(to, count) }
    }

    /// The first of some rows.
    #[inline]
    fn at(&self, start: usize, count: usize) -> *mut Row {
        let end = start.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.rows),
            "rows from {start} on: {count} of {}",
            self.rows
        );
        // SAFETY: the mapping holds `self.rows` rows, of which `start` is one or the end.
        unsafe { self.map.as_mut_ptr().cast::<Row>().add(start) }
    }
}
