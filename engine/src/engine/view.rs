//! The KV of one request, tile by tile: what a codec reads and writes.

use crate::{BLOCK_TOKENS, BlockId, KvPool};

/// The KV of one request's prompt, to be read. Blocks are counted from the start of the sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceKv<'a> {
    pub(super) pool: &'a KvPool,
    pub(super) blocks: &'a [BlockId],
    pub(super) tokens: u32,
}

impl<'a> SequenceKv<'a> {
    /// How many tokens the prompt has; the last block may be partial.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// The keys of one head in one layer and block, as BF16 bits: `[channel][64 tokens]`.
    ///
    /// # Panics
    /// Where there is no such layer, head or block.
    pub fn k(&self, layer: usize, head: usize, block: usize) -> &'a [u16] {
        self.pool.k(layer, self.blocks[block], head)
    }

    /// The values of one head in one layer and block, as BF16 bits: `[64 tokens][channel]`.
    ///
    /// # Panics
    /// Where there is no such layer, head or block.
    pub fn v(&self, layer: usize, head: usize, block: usize) -> &'a [u16] {
        self.pool.v(layer, self.blocks[block], head)
    }
}

/// The KV of one request's prompt, to be written between two steps: the grant ends with the borrow, and there is none for
/// a request that no longer waits for its prompt.
///
/// The rows of the last block after the prompt's last token are the engine's, which may have drafted into them: a writer
/// leaves them as they are. Overwriting them costs drafts, and never a committed token.
#[derive(Debug)]
pub struct SequenceKvMut<'a> {
    pub(super) pool: &'a mut KvPool,
    pub(super) blocks: &'a [BlockId],
    pub(super) shared: usize,
    pub(super) tokens: u32,
}

impl SequenceKvMut<'_> {
    /// The same, to be read.
    pub fn as_ref(&self) -> SequenceKv<'_> {
        SequenceKv {
            pool: self.pool,
            blocks: self.blocks,
            tokens: self.tokens,
        }
    }

    /// The first block that may be written: those before it are shared with other requests, and exact already.
    pub fn first_block(&self) -> usize {
        self.shared
    }

    /// The keys of one head in one layer and block, as BF16 bits: `[channel][64 tokens]`.
    ///
    /// # Panics
    /// Where there is no such layer, head or block, or the block is before [`first_block`](Self::first_block).
    pub fn k_mut(&mut self, layer: usize, head: usize, block: usize) -> &mut [u16] {
        let block = self.writable(block);
        self.pool.k_mut(layer, block, head)
    }

    /// The values of one head in one layer and block, as BF16 bits: `[64 tokens][channel]`.
    ///
    /// # Panics
    /// Where there is no such layer, head or block, or the block is before [`first_block`](Self::first_block).
    pub fn v_mut(&mut self, layer: usize, head: usize, block: usize) -> &mut [u16] {
        let block = self.writable(block);
        self.pool.v_mut(layer, block, head)
    }

    fn writable(&self, block: usize) -> BlockId {
        assert!(
            block >= self.shared,
            "block {block} is shared: the first to write is {}",
            self.shared
        );
        self.blocks[block]
    }
}

/// How many blocks this many tokens take.
pub(super) fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK_TOKENS)
}
