//! The KV pool: keys and values as BF16, in blocks of 64 tokens.
//!
//! A block holds all layers and KV heads of 64 consecutive positions of one sequence, so that a block table of block ids
//! describes a sequence, and a block is one contiguous piece of memory to copy or to receive into. The layouts are those
//! that the attention kernel reads: of a head's keys, 64 tokens of one channel lie together, of its values, all channels of
//! one token. Keys are stored after the rotary embedding, channels in half-split order.
//!
//! A pool lies in this process's memory, or in a file ([`KvPool::shared`]) through which another process reads and writes
//! blocks without a copy. Who may touch what when is then the callers' affair: see [`Engine::hold`](crate::Engine::hold).

mod storage;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;

use lynx_units::Bytes;

use crate::Config;
use storage::{Row, Storage};

/// How many tokens a block holds.
pub const BLOCK_TOKENS: usize = 64;

/// A block of a [`KvPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Where a head's keys and values lie in a pool, in bytes: those of block `b`, layer `l` and head `h` begin at
/// `b * block + l * layer + h * head`, keys first, and values `values` bytes after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// From a block to the next.
    pub block: u64,
    /// From a layer to the next.
    pub layer: u64,
    /// From a head to the next.
    pub head: u64,
    /// From a head's keys to its values.
    pub values: u64,
}

/// Why a pool can't lie in a file.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A pool without blocks, or with more than can be addressed.
    #[error(
        "a pool of {blocks} KV blocks makes no sense: give it at least one, and no more than memory holds"
    )]
    Size {
        /// How many were asked for.
        blocks: usize,
    },
    /// No space for the file's full length.
    #[error(
        "the KV pool's file can't have {bytes}: give its folder more space, or the engine fewer blocks (lynx engine: a lower --max-tokens)"
    )]
    Space {
        /// The pool's size.
        bytes: Bytes,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The file can't be mapped.
    #[error(
        "the KV pool's file can't be mapped into memory: open it for reading and writing, on a file system of this machine"
    )]
    Map(#[source] io::Error),
}

/// Memory for the keys and values of many sequences. Who owns which block is not known here.
#[derive(Debug)]
pub struct KvPool {
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    blocks: usize,
    /// [block][layer][head][keys, values][channel][token] or [token][channel].
    data: Storage,
}

impl KvPool {
    /// A pool of zeroed blocks for a model.
    #[must_use]
    pub fn new(config: &Config, blocks: usize) -> Self {
        let rows = blocks * rows_per_block(config);
        Self::over(config, blocks, Storage::own(rows))
    }

    /// A pool in a file, which gets the pool's size and is mapped, with what it holds: zeros, if it was empty. The file
    /// must keep its length as long as the pool lives.
    ///
    /// # Errors
    /// Where there is no space for it, or it can't be mapped.
    pub fn shared(config: &Config, blocks: usize, file: &File) -> Result<Self, PoolError> {
        let rows = blocks
            .checked_mul(rows_per_block(config))
            .filter(|rows| *rows > 0 && *rows <= isize::MAX as usize / size_of::<Row>())
            .ok_or(PoolError::Size { blocks })?;
        let bytes = (rows * size_of::<Row>()) as u64;
        file.set_len(bytes)
            .and_then(|()| reserve(file, bytes))
            .map_err(|source| PoolError::Space {
                bytes: Bytes::new(bytes),
                source,
            })?;
        let data = Storage::shared(file, rows).map_err(PoolError::Map)?;
        Ok(Self::over(config, blocks, data))
    }

    fn over(config: &Config, blocks: usize, data: Storage) -> Self {
        Self {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
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
        self.data.bytes()
    }

    /// Where in it things lie.
    #[must_use]
    pub fn layout(&self) -> KvLayout {
        let row = size_of::<Row>() as u64;
        let values = self.head_dim as u64 * row;
        let head = 2 * values;
        let layer = self.kv_heads as u64 * head;
        KvLayout {
            block: self.layers as u64 * layer,
            layer,
            head,
            values,
        }
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
        self.data.rows_mut(start, self.head_dim).as_flattened_mut()
    }

    /// The values of one head in one block and layer, to be written; see [`Self::v`].
    ///
    /// # Panics
    /// If the layer, block or head does not exist.
    #[must_use]
    pub fn v_mut(&mut self, layer: usize, block: BlockId, head: usize) -> &mut [u16] {
        let start = self.start(layer, block, head) + self.head_dim;
        self.data.rows_mut(start, self.head_dim).as_flattened_mut()
    }

    /// All layers and heads of one block: what is copied when a shared block is about to be written.
    ///
    /// # Panics
    /// If either block does not exist.
    pub fn copy_block(&mut self, from: BlockId, to: BlockId) {
        let length = self.layers * self.kv_heads * 2 * self.head_dim;
        let (from, to) = (from.0 as usize * length, to.0 as usize * length);
        self.data.copy(from, to, length);
    }

    /// Keys as the kernels read them: a row is one channel's 64 tokens.
    pub(crate) fn key_rows(&self, layer: usize, block: BlockId, head: usize) -> &[Row] {
        let start = self.start(layer, block, head);
        self.data.rows(start, self.head_dim)
    }

    /// Values as the kernels read them: a row is 64 channels of one token, a token has `head_dim / 64` rows.
    pub(crate) fn value_rows(&self, layer: usize, block: BlockId, head: usize) -> &[Row] {
        let start = self.start(layer, block, head) + self.head_dim;
        self.data.rows(start, self.head_dim)
    }

    fn start(&self, layer: usize, block: BlockId, head: usize) -> usize {
        assert!(layer < self.layers, "layer {layer} of {}", self.layers);
        assert!(head < self.kv_heads, "head {head} of {}", self.kv_heads);
        ((block.0 as usize * self.layers + layer) * self.kv_heads + head) * 2 * self.head_dim
    }
}

/// How many rows a block of a model takes.
fn rows_per_block(config: &Config) -> usize {
    config.layers * config.kv_heads * 2 * config.head_dim
}

/// Takes the file's space now: a file system that is full would end the process at some later write.
#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;

    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system that can't: writes may find it full.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}
