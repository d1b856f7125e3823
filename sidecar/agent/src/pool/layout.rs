//! Where an engine's KV lies, as far as this agent can read it.

use lynx_kernels::{BLOCK_TOKENS, Kind, KvShape, ShapeError};
use lynx_proto::engine::v1;

/// Bytes of an element: BF16 is the only one.
const ELEMENT_BYTES: usize = 2;

/// A layout that the codec can work on in place: K as `[channel][token]`, V as `[token][channel]`, BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: KvShape,
    block_stride: usize,
    layer_stride: usize,
    head_stride: usize,
    v_offset: usize,
}

/// Why this agent can't work with an engine's KV layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The message has none.
    #[error("the engine gave no KV layout: it must send one in Attach")]
    Missing,
    /// The codec can't take the shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Blocks of another size.
    #[error(
        "blocks of {0} tokens are not supported: configure the engine for blocks of {BLOCK_TOKENS} tokens"
    )]
    BlockTokens(u32),
    /// Another order of K.
    #[error(
        "K in the order {0} is not supported: K must be [channel][token] (ORDER_CHANNEL_TOKEN)"
    )]
    KeyOrder(&'static str),
    /// Another order of V.
    #[error(
        "V in the order {0} is not supported: V must be [token][channel] (ORDER_TOKEN_CHANNEL)"
    )]
    ValueOrder(&'static str),
    /// Another type.
    #[error(
        "KV elements of type {0} are not supported: configure the engine for a BF16 KV cache (ELEMENT_TYPE_BF16)"
    )]
    Element(&'static str),
    /// Another order of rotary channels.
    #[error(
        "rotary channels in the order {0} are not supported: they must be half-split (ROTARY_HALF_SPLIT)"
    )]
    Rotary(&'static str),
    /// A part of the KV.
    #[error(
        "tensor parallelism of {size} (rank {rank}) is not supported: run the engine with a tensor-parallel size of 1"
    )]
    TensorParallel {
        /// The engine's rank.
        rank: u32,
        /// Of how many.
        size: u32,
    },
    /// A stride that is no multiple of an element, or that this machine has no number for.
    #[error("the {name} of {bytes} bytes is not a whole number of 2-byte elements in memory")]
    Unaligned {
        /// Which stride.
        name: &'static str,
        /// Its value.
        bytes: u64,
    },
    /// Two tiles at one place.
    #[error(
        "the {name} of {bytes} bytes is too small: the {inner} bytes of what it steps over would overlap"
    )]
    Overlap {
        /// Which stride.
        name: &'static str,
        /// Its value.
        bytes: usize,
        /// What lies within one step.
        inner: usize,
    },
    /// More than memory can hold.
    #[error("{blocks} blocks of this layout are more than this machine can address")]
    TooLarge {
        /// How many blocks there are to be.
        blocks: u32,
    },
}

impl Layout {
    /// The layout that an engine declares.
    ///
    /// # Errors
    /// Names the first thing that is not supported.
    pub fn parse(layout: &v1::Layout) -> Result<Self, LayoutError> {
        let shape = KvShape {
            layers: layout.layers as usize,
            kv_heads: layout.kv_heads as usize,
            head_dim: layout.head_dim as usize,
        };
        shape.check()?;
        if layout.block_tokens as usize != BLOCK_TOKENS {
            return Err(LayoutError::BlockTokens(layout.block_tokens));
        }
        if layout.k_order() != v1::Order::ChannelToken {
            return Err(LayoutError::KeyOrder(layout.k_order().as_str_name()));
        }
        if layout.v_order() != v1::Order::TokenChannel {
            return Err(LayoutError::ValueOrder(layout.v_order().as_str_name()));
        }
        if layout.element() != v1::ElementType::Bf16 {
            return Err(LayoutError::Element(layout.element().as_str_name()));
        }
        if layout.rotary() != v1::Rotary::HalfSplit {
            return Err(LayoutError::Rotary(layout.rotary().as_str_name()));
        }
        let (rank, size) = (layout.tensor_parallel_rank, layout.tensor_parallel_size);
        if (rank, size) != (0, 1) {
            return Err(LayoutError::TensorParallel { rank, size });
        }
        let layout = Self {
            shape,
            block_stride: aligned("block stride", layout.block_stride)?,
            layer_stride: aligned("layer stride", layout.layer_stride)?,
            head_stride: aligned("head stride", layout.head_stride)?,
            v_offset: aligned("offset of V", layout.v_offset)?,
        };
        // Two blocks are as good as many: overlap shows at the first step.
        layout.bytes(2)?;
        Ok(layout)
    }

    /// The KV's shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Elements of one head's K, or V, in one block.
    pub fn tile_elements(&self) -> usize {
        self.shape.head_dim * BLOCK_TOKENS
    }

    /// Bytes from the file's start to the end of the last of `blocks` blocks.
    ///
    /// # Errors
    /// Where tiles would overlap, or the sum is out of range.
    pub fn bytes(&self, blocks: u32) -> Result<usize, LayoutError> {
        let too_large = LayoutError::TooLarge { blocks };
        let mut steps = [
            ("offset of V", self.v_offset, 2),
            ("head stride", self.head_stride, self.shape.kv_heads),
            ("layer stride", self.layer_stride, self.shape.layers),
            ("block stride", self.block_stride, blocks as usize),
        ];
        // Tiles don't overlap if each stride, from the smallest on, steps over all that the smaller ones span.
        steps.sort_by_key(|(_, stride, _)| *stride);
        let mut inner = self.tile_elements() * ELEMENT_BYTES;
        for (name, bytes, count) in steps {
            let Some(further) = count.checked_sub(1).filter(|further| *further > 0) else {
                continue;
            };
            if bytes < inner {
                return Err(LayoutError::Overlap { name, bytes, inner });
            }
            let span = bytes.checked_mul(further);
            let Some(span) = span.and_then(|span| span.checked_add(inner)) else {
                return Err(too_large);
            };
            inner = span;
        }
        if isize::try_from(inner).is_err() {
            return Err(too_large);
        }
        Ok(inner)
    }

    /// Where one head's K or V of one block begins, in elements from the file's start. Within [`bytes`](Self::bytes) for a
    /// block, layer and head that exist.
    pub(super) fn tile(&self, block: u32, layer: usize, head: usize, kind: Kind) -> usize {
        let within = match kind {
            Kind::K => 0,
            Kind::V => self.v_offset,
        };
        let bytes = block as usize * self.block_stride
            + layer * self.layer_stride
            + head * self.head_stride
            + within;
        bytes / ELEMENT_BYTES
    }
}

fn aligned(name: &'static str, bytes: u64) -> Result<usize, LayoutError> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_multiple_of(ELEMENT_BYTES))
        .ok_or(LayoutError::Unaligned { name, bytes })
}
