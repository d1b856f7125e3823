//! How the codec sees a block of KV in memory.
//!
//! Group-major: a K block is `[channel][token]`, a V block is `[token][channel]`, so that in both a group of the codec
//! is a contiguous run and K and V are one code path. An engine that stores K by token transposes outside.

/// One head's block in memory, to be read: element `i` of row `r` is `data[r * stride + i]`. Rows are K's channels or V's
/// tokens; the block's first token (a multiple of 64 in the sequence) is element 0 of a K row, row 0 of V.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// BF16 bit patterns.
    pub data: &'a [u16],
    /// Elements from one row's start to the next.
    pub stride: usize,
}

/// One head's block in memory, to be written; laid out as [`Rows`].
#[derive(Debug)]
pub struct RowsMut<'a> {
    /// BF16 bit patterns.
    pub data: &'a mut [u16],
    /// Elements from one row's start to the next.
    pub stride: usize,
}

/// Where a unit's blocks are read. One source is one (layer, K or V).
pub trait TileSource {
    /// The block of `head`, where `block` is the token position divided by 64.
    fn rows(&self, head: usize, block: usize) -> Rows<'_>;
}

/// Where a unit's blocks are written. One sink is one (layer, K or V).
pub trait TileSink {
    /// The block of `head`, where `block` is the token position divided by 64. Only the unit's own tokens are written.
    fn rows_mut(&mut self, head: usize, block: usize) -> RowsMut<'_>;
}

/// A rectangle of a block: the coded tokens of one head, as `groups` rows of `lanes` elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    data: &'a [u16],
    stride: usize,
    size: Size,
}

/// The writable counterpart of [`Matrix`].
#[derive(Debug)]
pub(crate) struct MatrixMut<'a> {
    data: &'a mut [u16],
    stride: usize,
    size: Size,
}

/// The size of a tile's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Rows: up to 256.
    pub groups: usize,
    /// Elements a row: up to 256.
    pub lanes: usize,
}

impl Size {
    /// 64-lane words that a row's plane takes in memory.
    pub(crate) const fn runs(self) -> usize {
        self.lanes.div_ceil(64)
    }

    /// Bytes that a row's plane takes on the wire.
    pub(crate) const fn word_bytes(self) -> usize {
        self.lanes.div_ceil(8)
    }

    /// Whether the last run of a row is written with all its eight bytes too.
    pub(crate) const fn has_whole_runs(self) -> bool {
        self.word_bytes() == self.runs() * 8
    }

    /// 64-lane words that all planes take in memory.
    pub(crate) const fn words(self) -> usize {
        self.groups * self.runs() * 8
    }
}

impl<'a> Matrix<'a> {
    /// The rectangle of `size` that starts at `data[first]`.
    ///
    /// # Panics
    /// Where the block in memory is smaller.
    pub(crate) fn new(rows: Rows<'a>, first: usize, size: Size) -> Self {
        let data = &rows.data[first..];
        Self {
            data,
            stride: rows.stride,
            size,
        }
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Elements from this matrix's first to that of one which follows it in memory.
    pub(crate) fn span(&self) -> usize {
        self.stride * self.size.groups
    }

    pub(crate) fn row(&self, group: usize) -> &'a [u16] {
        &self.data[group * self.stride..][..self.size.lanes]
    }
}

impl<'a> MatrixMut<'a> {
    /// As [`Matrix::new`].
    pub(crate) fn new(rows: RowsMut<'a>, first: usize, size: Size) -> Self {
        let data = &mut rows.data[first..];
        Self {
            data,
            stride: rows.stride,
            size,
        }
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    pub(crate) fn row(&mut self, group: usize) -> &mut [u16] {
        &mut self.data[group * self.stride..][..self.size.lanes]
    }
}
