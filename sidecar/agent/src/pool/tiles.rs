//! A request's blocks, as the codec sees them.
#![expect(
    unsafe_code,
    reason = "whether tiles may be read or written is known here: see the two tables"
)]

use lynx_kernels::{BLOCK_TOKENS, Kind, Rows, RowsMut, TileSink, TileSource};

use super::layout::Layout;
use super::mapping::Mapping;

/// One layer's K or V of a prompt, to be read. Made by [`Readable`](super::Readable) where all of it is published, or by
/// [`Writable`](super::Writable) where all of it is the agent's.
#[derive(Debug)]
pub struct Source<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) layout: &'a Layout,
    /// By the token position divided by 64; only those that may be read.
    pub(super) blocks: &'a [u32],
    /// How many blocks precede those.
    pub(super) skipped: usize,
    pub(super) layer: usize,
    pub(super) kind: Kind,
}

/// One layer's K or V of a prompt, to be written. Made by [`Writable`](super::Writable), whose exclusive borrow it holds.
#[derive(Debug)]
pub struct Sink<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) layout: &'a Layout,
    /// By the token position divided by 64; only those that may be written.
    pub(super) blocks: &'a [u32],
    /// How many blocks precede those.
    pub(super) skipped: usize,
    pub(super) layer: usize,
    pub(super) kind: Kind,
}

impl TileSource for Source<'_> {
    fn rows(&self, head: usize, block: usize) -> Rows<'_> {
        let layout = self.layout;
        let id = self.blocks[block - self.skipped];
        let start = layout.tile(id, self.layer, head, self.kind);
        // SAFETY: the block is one that may be read. A readable table has it published and not released: the engine writes no
        // published row, and `Pool` has given it to no writable table. A writable table has it granted, so the engine
        // leaves it alone, and borrows of the table keep sinks of it away.
        let data = unsafe { self.mapping.read(start, layout.tile_elements()) };
        Rows {
            data,
            stride: stride(self.kind, data.len()),
        }
    }
}

impl TileSink for Sink<'_> {
    fn rows_mut(&mut self, head: usize, block: usize) -> RowsMut<'_> {
        let layout = self.layout;
        let id = self.blocks[block - self.skipped];
        let start = layout.tile(id, self.layer, head, self.kind);
        // SAFETY: the block is granted, so the engine leaves it alone (rules 2 and 3); `Pool` has given it to no other table, and
        // this sink has the only, exclusive borrow of its table. Tiles of different blocks don't overlap: see `Layout`.
        let data = unsafe { self.mapping.write(start, layout.tile_elements()) };
        let stride = stride(self.kind, data.len());
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
