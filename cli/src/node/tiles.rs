//! The engine's blocks, as the codec sees them.

use lynx_engine::{SequenceKv, SequenceKvMut};
use lynx_kernels::{BLOCK_TOKENS, Kind, Rows, RowsMut, TileSink, TileSource};

/// One layer's K or V of a sequence, to be read.
#[derive(Debug)]
pub(super) struct Source<'a> {
    kv: &'a SequenceKv<'a>,
    layer: usize,
    kind: Kind,
}

impl<'a> Source<'a> {
    /// Layer `layer`'s K or V of `kv`.
    pub(super) fn new(kv: &'a SequenceKv<'a>, layer: usize, kind: Kind) -> Self {
        Self { kv, layer, kind }
    }

    /// One head's block: K as `[channel][64 tokens]`, V as `[64 tokens][channel]`.
    pub(super) fn block(&self, head: usize, block: usize) -> &[u16] {
        match self.kind {
            Kind::K => self.kv.k(self.layer, head, block),
            Kind::V => self.kv.v(self.layer, head, block),
        }
    }
}

impl TileSource for Source<'_> {
    fn rows(&self, head: usize, block: usize) -> Rows<'_> {
        let data = self.block(head, block);
        Rows {
            data,
            stride: stride(self.kind, data.len()),
        }
    }
}

/// One layer's K or V of a sequence, to be written.
#[derive(Debug)]
pub(super) struct Sink<'a, 'kv> {
    kv: &'a mut SequenceKvMut<'kv>,
    layer: usize,
    kind: Kind,
}

impl<'a, 'kv> Sink<'a, 'kv> {
    /// Layer `layer`'s K or V of `kv`.
    pub(super) fn new(kv: &'a mut SequenceKvMut<'kv>, layer: usize, kind: Kind) -> Self {
        Self { kv, layer, kind }
    }

    /// One head's block, laid out as [`Source::block`].
    pub(super) fn block_mut(&mut self, head: usize, block: usize) -> &mut [u16] {
        match self.kind {
            Kind::K => self.kv.k_mut(self.layer, head, block),
            Kind::V => self.kv.v_mut(self.layer, head, block),
        }
    }
}

impl TileSink for Sink<'_, '_> {
    fn rows_mut(&mut self, head: usize, block: usize) -> RowsMut<'_> {
        let kind = self.kind;
        let data = self.block_mut(head, block);
        let stride = stride(kind, data.len());
        RowsMut { data, stride }
    }
}

/// Elements of a row: K's rows are channels of 64 tokens, V's rows are tokens of all channels.
fn stride(kind: Kind, elements: usize) -> usize {
    match kind {
        Kind::K => BLOCK_TOKENS,
        Kind::V => elements / BLOCK_TOKENS,
    }
}
