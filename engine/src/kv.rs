//! The KV pool: keys and values as BF16, in blocks of 64 tokens.
//!
//! A block holds all layers and KV heads of 64 consecutive positions of one sequence, so that a block table of block ids
//! describes a sequence, and a block is one contiguous piece of memory to copy or to receive into. The layouts are those
//! that the attention kernel reads: of a head's keys, 64 tokens of one channel lie together, of its values, all channels of
//! one token. Keys are stored after the rotary embedding, channels in half-split order.

use crate::Config;

/// How many tokens a block holds.
pub const BLOCK_TOKENS: usize = 64;

/// A block of a [`KvPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Memory for the keys and values of many sequences. Who owns which block is not known here.
#[derive(Debug)]
pub struct KvPool {
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    blocks: usize,
    /// [block][layer][head][keys, values][channel][token] or [token][channel].
    data: Vec<[u16; BLOCK_TOKENS]>,
}

impl KvPool {
    /// A pool of zeroed blocks for a model.
    #[must_use]
    pub fn new(config: &Config, blocks: usize) -> Self {
        let (layers, kv_heads, head_dim) = (config.layers, config.kv_heads, config.head_dim);
        let data = vec![[0; BLOCK_TOKENS]; blocks * layers * kv_heads * 2 * head_dim];
        Self {
            layers,
            kv_heads,
            head_dim,
            blocks,
            data,
        }
    }

    /// Whether the pool was made for models of this shape.
    #[must_use]
    pub fn fits(&self, config: &Config) -> bool {
        (self.layers, self.kv_heads, self.head_dim)
            == (config.layers, config.kv_heads, config.head_dim)
    }

    /// How many blocks there are; ids are below that.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The pool's size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    /// The keys of one head in one block and layer, as BF16 bits: `[channel][64 tokens]`.
    ///
    /// # Panics
    /// If the layer, block or head does not exist.
    #[must_use]
    pub fn k(&self, layer: usize, block: BlockId, head: usize) -> &[u16] {
        self.key_rows(layer, block, head).as_flattened()
    }

    /// The values of one head in one block and layer, as BF16 bits: `[64 tokens][channel]`.
    ///
    /// # Panics
    /// If the layer, block or head does not exist.
    #[must_use]
    pub fn v(&self, layer: usize, block: BlockId, head: usize) -> &[u16] {
        self.value_rows(layer, block, head).as_flattened()
    }

    /// The keys of one head in one block and layer, to be written; see [`Self::k`].
    ///
    /// # Panics
    /// If the layer, block or head does not exist.
    #[must_use]
    pub fn k_mut(&mut self, layer: usize, block: BlockId, head: usize) -> &mut [u16] {
        let start = self.start(layer, block, head);
        self.data[start..start + self.head_dim].as_flattened_mut()
    }

    /// The values of one head in one block and layer, to be written; see [`Self::v`].
    ///
    /// # Panics
    /// If the layer, block or head does not exist.
    #[must_use]
    pub fn v_mut(&mut self, layer: usize, block: BlockId, head: usize) -> &mut [u16] {
        let start = self.start(layer, block, head) + self.head_dim;
        self.data[start..start + self.head_dim].as_flattened_mut()
    }

    /// All layers and heads of one block: what is copied when a shared block is about to be written.
    ///
    /// # Panics
    /// If either block does not exist.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) {
        let length = self.layers * self.kv_heads * 2 * self.head_dim;
        let (from, to) = (from.0 as usize * length, to.0 as usize * length);
        self.data.copy_within(from..from + length, to);
    }

    /// Keys as the kernels read them: a row is one channel's 64 tokens.
    pub(crate) fn key_rows(
        &self,
        layer: usize,
        block: BlockId,
        head: usize,
    ) -> &[[u16; BLOCK_TOKENS]] {
        let start = self.start(layer, block, head);
        &self.data[start..start + self.head_dim]
    }

    /// Values as the kernels read them: a row is 64 channels of one token, a token has `head_dim / 64` rows.
    pub(crate) fn value_rows(
        &self,
        layer: usize,
        block: BlockId,
        head: usize,
    ) -> &[[u16; BLOCK_TOKENS]] {
        let start = self.start(layer, block, head) + self.head_dim;
        &self.data[start..start + self.head_dim]
    }

    fn start(&self, layer: usize, block: BlockId, head: usize) -> usize {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        assert!(head < self.kv_heads, "head {head} of {}", self.kv_heads);
        ((block.0 as usize * self.layers + layer) * self.kv_heads + head) * 2 * self.head_dim
    }
}
