//! One layer's K or V in plain memory, in the layout that the codec reads.

use core::ops::Range;

use crate::{BLOCK_TOKENS, Kind, KvShape, Rows, RowsMut, TileSink, TileSource};

/// The K or V of one layer over whole blocks, as `[block][head][row][element]` without gaps: what tests, benches and
/// converters of other layouts use. An engine with its own memory implements [`TileSource`] and [`TileSink`] itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    kind: Kind,
    shape: KvShape,
    first_block: usize,
    data: Vec<u16>,
}

impl Blocks {
    /// Zeros for all blocks that have any of the positions `tokens`.
    pub fn new(shape: KvShape, kind: Kind, tokens: Range<u32>) -> Self {
        let first_block = tokens.start as usize / BLOCK_TOKENS;
        let blocks = (tokens.end as usize)
            .div_ceil(BLOCK_TOKENS)
            .saturating_sub(first_block);
        let data = vec![0; blocks * shape.kv_heads * shape.head_dim * BLOCK_TOKENS];
        Self {
            kind,
            shape,
            first_block,
            data,
        }
    }

    /// All values, padding tokens included.
    pub fn data(&self) -> &[u16] {
        &self.data
    }

    /// All values, padding tokens included.
    pub fn data_mut(&mut self) -> &mut [u16] {
        &mut self.data
    }

    /// Where the value of (position, head, channel) lies in [`Blocks::data`].
    pub fn index(&self, position: u32, head: usize, channel: usize) -> usize {
        let (position, stride) = (position as usize, self.stride());
        let token = position % BLOCK_TOKENS;
        let in_block = match self.kind {
            Kind::K => channel * stride + token,
            Kind::V => token * stride + channel,
        };
        self.range(head, position / BLOCK_TOKENS).start + in_block
    }

    fn stride(&self) -> usize {
        match self.kind {
            Kind::K => BLOCK_TOKENS,
            Kind::V => self.shape.head_dim,
        }
    }

    fn range(&self, head: usize, block: usize) -> Range<usize> {
        let len = self.shape.head_dim * BLOCK_TOKENS;
        let start = ((block - self.first_block) * self.shape.kv_heads + head) * len;
        start..start + len
    }
}

impl TileSource for Blocks {
    fn rows(&self, head: usize, block: usize) -> Rows<'_> {
        Rows {
            data: &self.data[self.range(head, block)],
            stride: self.stride(),
        }
    }
}

impl TileSink for Blocks {
    fn rows_mut(&mut self, head: usize, block: usize) -> RowsMut<'_> {
        let (range, stride) = (self.range(head, block), self.stride());
        RowsMut {
            data: &mut self.data[range],
            stride,
        }
    }
}
