//! Where an engine's KV lies, as far as this agent can read it.

use lynx_gpu::Pages;
use lynx_kernels::{BLOCK_TOKENS, Kind, KvShape, ShapeError};
use lynx_proto::engine::v1;

/// Bytes of an element: of BF16, and of FP16.
const ELEMENT_BYTES: usize = 2;

/// A layout that is coded in place. On the processor: K as `[channel][token]`, V as `[token][channel]`, in blocks of 64 tokens. On a
/// GPU: both as `[token][channel]` with any strides, in blocks of 16 to 128 tokens. What the engine codes by itself: anything, in
/// such blocks. BF16; on a GPU and of what the engine codes, FP16 too, which is coded as its BF16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: KvShape,
    block_tokens: usize,
    block_stride: usize,
    layer_stride: usize,
    head_stride: usize,
    v_offset: usize,
    /// On a GPU.
    token_stride: Option<usize>,
    /// Whether each layer has a place of its own, and no stride leads to the next.
    is_apart: bool,
    /// FP16 instead of BF16.
    is_half: bool,
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
    /// Blocks of a size that a GPU's kernels don't take.
    #[error(
        "blocks of {0} tokens are not supported on a GPU: configure the engine for 16, 32, 64 or 128 tokens"
    )]
    Pages(u32),
    /// Another order of K on a GPU.
    #[error(
        "K in the order {0} is not supported in a GPU's memory: K must be [token][channel] (ORDER_TOKEN_CHANNEL)"
    )]
    PagedKeyOrder(&'static str),
    /// A stride that isn't what a GPU's threads read at a time.
    #[error("the {name} of {bytes} bytes is not a multiple of 16, as it must be in a GPU's memory")]
    Uneven {
        /// Which stride.
        name: &'static str,
        /// Its value.
        bytes: usize,
    },
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
        "KV elements of type {0} are not supported here: configure the engine for a BF16 KV cache (ELEMENT_TYPE_BF16); FP16 is taken in a GPU's memory, and of engines that code by themselves"
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
        let shape = shape(layout)?;
        if layout.block_tokens as usize != BLOCK_TOKENS {
            return Err(LayoutError::BlockTokens(layout.block_tokens));
        }
        if layout.k_order() != v1::Order::ChannelToken {
            return Err(LayoutError::KeyOrder(layout.k_order().as_str_name()));
        }
        Self::checked(layout, shape, None, false)
    }

    /// The layout that an engine declares of blocks in a GPU's memory.
    ///
    /// # Errors
    /// Names the first thing that is not supported.
    pub fn on_gpu(layout: &v1::Layout, gpu: &v1::GpuPool) -> Result<Self, LayoutError> {
        let shape = shape(layout)?;
        if !matches!(layout.block_tokens, 16 | 32 | 64 | 128) {
            return Err(LayoutError::Pages(layout.block_tokens));
        }
        if layout.k_order() != v1::Order::TokenChannel {
            return Err(LayoutError::PagedKeyOrder(layout.k_order().as_str_name()));
        }
        let stride = aligned("token stride", gpu.token_stride)?;
        let found = Self::checked(layout, shape, Some(stride), !gpu.layers.is_empty())?;
        let strides = [
            ("token stride", stride),
            ("head stride", found.head_stride),
            ("block stride", found.block_stride),
            ("layer stride", found.layer_stride),
            ("offset of V", found.v_offset),
        ];
        match strides
            .into_iter()
            .find(|(_, bytes)| !bytes.is_multiple_of(16))
        {
            Some((name, bytes)) => Err(LayoutError::Uneven { name, bytes }),
            None => Ok(found),
        }
    }

    /// The layout that an engine declares of blocks that it codes by itself: where a token's KV lies is its own affair.
    ///
    /// # Errors
    /// Names the first thing that is not supported.
    pub fn by_engine(layout: &v1::Layout) -> Result<Self, LayoutError> {
        let shape = shape(layout)?;
        if !matches!(layout.block_tokens, 16 | 32 | 64 | 128) {
            return Err(LayoutError::Pages(layout.block_tokens));
        }
        let is_half = check_values(layout, true)?;
        Ok(Self {
            is_half,
            shape,
            block_tokens: layout.block_tokens as usize,
            block_stride: 0,
            layer_stride: 0,
            head_stride: 0,
            v_offset: 0,
            token_stride: None,
            is_apart: true,
        })
    }

    fn checked(
        layout: &v1::Layout,
        shape: KvShape,
        token_stride: Option<usize>,
        is_apart: bool,
    ) -> Result<Self, LayoutError> {
        if layout.v_order() != v1::Order::TokenChannel {
            return Err(LayoutError::ValueOrder(layout.v_order().as_str_name()));
        }
        // The processor reads a file's values in place.
        let is_half = check_values(layout, token_stride.is_some())?;
        let layout = Self {
            is_half,
            shape,
            block_tokens: layout.block_tokens as usize,
            token_stride,
            is_apart,
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

    /// Whether values are FP16, and coded as their BF16.
    pub fn is_half(&self) -> bool {
        self.is_half
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// On a GPU: a layer's pages of K or V.
    pub(super) fn pages(&self) -> Option<Pages> {
        let elements = |bytes: usize| u32::try_from(bytes / ELEMENT_BYTES).ok();
        Some(Pages {
            tokens: u32::try_from(self.block_tokens).ok()?,
            page_stride: (self.block_stride / ELEMENT_BYTES) as u64,
            token_stride: elements(self.token_stride?)?,
            head_stride: elements(self.head_stride)?,
        })
    }

    /// Where layer `layer` begins, in bytes, where none has a place of its own.
    pub(super) fn layer(&self, layer: usize) -> usize {
        layer * self.layer_stride
    }

    /// From a layer's K to its V, in bytes.
    pub(super) fn v_offset(&self) -> usize {
        self.v_offset
    }

    /// Elements of one head's K, or V, in one block.
    pub fn tile_elements(&self) -> usize {
        self.shape.head_dim * BLOCK_TOKENS
    }

    /// Bytes from the file's start to the end of the last of `blocks` blocks; from a layer's, where each has its own place.
    ///
    /// # Errors
    /// Where tiles would overlap, or the sum is out of range.
    pub fn bytes(&self, blocks: u32) -> Result<usize, LayoutError> {
        let too_large = LayoutError::TooLarge { blocks };
        let layers = if self.is_apart { 1 } else { self.shape.layers };
        let (token_stride, tokens) = match self.token_stride {
            Some(stride) => (stride, self.block_tokens),
            None => (0, 1),
        };
        let mut steps = [
            ("token stride", token_stride, tokens),
            ("offset of V", self.v_offset, 2),
            ("head stride", self.head_stride, self.shape.kv_heads),
            ("layer stride", self.layer_stride, layers),
            ("block stride", self.block_stride, blocks as usize),
        ];
        // Tiles don't overlap if each stride, from the smallest on, steps over all that the smaller ones span.
        steps.sort_by_key(|(_, stride, _)| *stride);
        let mut inner = match self.token_stride {
            Some(_) => self.shape.head_dim * ELEMENT_BYTES,
            None => self.tile_elements() * ELEMENT_BYTES,
        };
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

fn shape(layout: &v1::Layout) -> Result<KvShape, LayoutError> {
    let shape = KvShape {
        layers: layout.layers as usize,
        kv_heads: layout.kv_heads as usize,
        head_dim: layout.head_dim as usize,
    };
    shape.check()?;
    Ok(shape)
}

/// What is the same wherever values lie, but for FP16; whether they are that.
fn check_values(layout: &v1::Layout, may_be_half: bool) -> Result<bool, LayoutError> {
    let is_half = match layout.element() {
        v1::ElementType::Bf16 => false,
        v1::ElementType::Fp16 if may_be_half => true,
        other => return Err(LayoutError::Element(other.as_str_name())),
    };
    if layout.rotary() != v1::Rotary::HalfSplit {
        return Err(LayoutError::Rotary(layout.rotary().as_str_name()));
    }
    let (rank, size) = (layout.tensor_parallel_rank, layout.tensor_parallel_size);
    if (rank, size) != (0, 1) {
        return Err(LayoutError::TensorParallel { rank, size });
    }
    Ok(is_half)
}

fn aligned(name: &'static str, bytes: u64) -> Result<usize, LayoutError> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_multiple_of(ELEMENT_BYTES))
        .ok_or(LayoutError::Unaligned { name, bytes })
}
