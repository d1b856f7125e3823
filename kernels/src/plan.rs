//! Where every byte of a unit is, before any value is known.

mod prompt;

use core::ops::Range;

use crate::rows::Size;
use crate::{BLOCK_TOKENS, Cuts, Kind, KvShape, MIN_CODED_TOKENS, RawTokens, ShapeError};

pub use prompt::{PromptPlan, UnitRef};

/// The most tokens of a unit.
pub const MAX_UNIT_TOKENS: usize = 512;

/// Bytes of a group's parameters.
pub(crate) const PARAM_BYTES: usize = 4;
/// Bytes of a tile's entry in the table ahead of the tail.
pub(crate) const TAIL_ENTRY_BYTES: usize = 4;

/// A unit that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The shape isn't one the codec takes.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The token range is empty, reversed or too long.
    #[error("tokens {start}..{end} can't be a unit: a unit has 1 to {MAX_UNIT_TOKENS} tokens")]
    Tokens {
        /// The range's first token.
        start: u32,
        /// The token after its last.
        end: u32,
    },
    /// A prompt's units would be empty or too long.
    #[error("units of {0} tokens can't be: choose a multiple of 64 up to {MAX_UNIT_TOKENS}")]
    UnitTokens(u32),
}

/// One (layer, K or V, token range) over all KV heads: its tiles, and the length of every segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlan {
    shape: KvShape,
    kind: Kind,
    tokens: Range<u32>,
    cuts: Cuts,
    blocks: Vec<CodedBlock>,
    raw: Vec<Range<u32>>,
}

/// The coded tokens of a block, one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodedBlock {
    block: usize,
    first: usize,
    tokens: usize,
}

/// The coded tokens of one head's block: what is coded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The KV head.
    pub head: usize,
    /// The block: its first token's position divided by 64.
    pub block: usize,
    /// The first coded token, counted from the block's start.
    pub first: usize,
    /// Coded tokens: 16 to 64.
    pub tokens: usize,
}

impl UnitPlan {
    /// The unit of `kind` over the positions `tokens` of the sequence; the same for every layer.
    ///
    /// # Errors
    /// Where the shape is outside the codec's limits, or the range is empty or longer than [`MAX_UNIT_TOKENS`].
    pub fn new(
        shape: KvShape,
        kind: Kind,
        tokens: Range<u32>,
        raw: RawTokens,
        cuts: Cuts,
    ) -> Result<Self, PlanError> {
        let shape = shape.check()?;
        let (start, end) = (tokens.start, tokens.end);
        if start >= end || (end - start) as usize > MAX_UNIT_TOKENS {
            return Err(PlanError::Tokens { start, end });
        }
        let mut plan = Self {
            shape,
            kind,
            tokens,
            cuts,
            blocks: Vec::new(),
            raw: Vec::new(),
        };
        let mut next_raw = start;
        for block in start as usize / BLOCK_TOKENS..(end as usize).div_ceil(BLOCK_TOKENS) {
            let origin = block * BLOCK_TOKENS;
            let coded =
                raw.coded(clamp(origin, start, end)..clamp(origin + BLOCK_TOKENS, start, end));
            if coded.len() >= MIN_CODED_TOKENS {
                plan.push_raw(next_raw..coded.start);
                let first = coded.start as usize - origin;
                plan.blocks.push(CodedBlock {
                    block,
                    first,
                    tokens: coded.len(),
                });
                next_raw = coded.end;
            }
        }
        plan.push_raw(next_raw..end);
        Ok(plan)
    }

    fn push_raw(&mut self, run: Range<u32>) {
        if !run.is_empty() {
            self.raw.push(run);
        }
    }

    /// The cache's shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Keys or values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The positions in the sequence.
    pub fn tokens(&self) -> Range<u32> {
        self.tokens.clone()
    }

    /// Where the steps end.
    pub fn cuts(&self) -> Cuts {
        self.cuts
    }

    /// How many steps of words there are, the anchor included.
    pub fn steps(&self) -> usize {
        self.cuts.steps(self.kind)
    }

    /// How many segments there are: the head, the steps and the tail.
    pub fn segments(&self) -> usize {
        self.steps() + 2
    }

    /// The tiles, in the order of the segments: block after block, in each head after head.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        self.blocks.iter().flat_map(
            |&CodedBlock {
                 block,
                 first,
                 tokens,
             }| {
                (0..self.shape.kv_heads).map(move |head| Tile {
                    head,
                    block,
                    first,
                    tokens,
                })
            },
        )
    }

    /// The raw tokens, ascending, as runs of positions.
    pub fn raw_tokens(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.raw.iter().cloned()
    }

    /// Bytes of the head where no group is escaped: the parameters and the raw tokens.
    pub fn head_bytes(&self) -> usize {
        let params: usize = self.sizes().map(|size| size.groups * PARAM_BYTES).sum();
        params + self.raw_bytes()
    }

    /// The most bytes the head can have: every group escaped.
    pub fn head_bound(&self) -> usize {
        self.head_bytes() + self.elements() * 2
    }

    /// Bytes of step `step`, always exactly.
    pub fn step_bytes(&self, step: usize) -> usize {
        self.sizes()
            .map(|size| self.step_words(size, step).len() * size.word_bytes())
            .sum()
    }

    /// The most bytes the tail can have. An element's rest takes at most 15 bits in section A and one in section B, so
    /// a tile's sections together never exceed its BF16 by more than a byte.
    pub fn tail_bound(&self) -> usize {
        let tiles = self.blocks.len() * self.shape.kv_heads;
        tiles * (TAIL_ENTRY_BYTES + 1) + self.elements() * 2
    }

    /// The most bytes segment `index` can have, in the order head, steps, tail; zero for others.
    pub fn segment_bound(&self, index: usize) -> usize {
        match index {
            0 => self.head_bound(),
            i if i <= self.steps() => self.step_bytes(i - 1),
            i if i == self.steps() + 1 => self.tail_bound(),
            _ => 0,
        }
    }

    /// Bytes of the unit's BF16, raw tokens included: what a transfer without the codec would send.
    pub fn bf16_bytes(&self) -> usize {
        self.tokens.len() * self.shape.kv_heads * self.shape.head_dim * 2
    }

    /// Bytes of the raw tokens.
    pub(crate) fn raw_bytes(&self) -> usize {
        let tokens: usize = self.raw.iter().map(ExactSizeIterator::len).sum();
        tokens * self.shape.kv_heads * self.shape.head_dim * 2
    }

    /// Bytes of the parameters of all tiles.
    pub(crate) fn param_bytes(&self) -> usize {
        self.head_bytes() - self.raw_bytes()
    }

    /// The matrix of a tile with `tokens` coded tokens.
    pub(crate) fn size(&self, tokens: usize) -> Size {
        let channels = self.shape.head_dim;
        match self.kind {
            Kind::K => Size {
                groups: channels,
                lanes: tokens,
            },
            Kind::V => Size {
                groups: tokens,
                lanes: channels,
            },
        }
    }

    /// Where the tile's first element lies in a block of this row stride.
    pub(crate) fn first_element(&self, tile: Tile, stride: usize) -> usize {
        match self.kind {
            Kind::K => tile.first,
            Kind::V => tile.first * stride,
        }
    }

    /// Which of a tile's words (in the profile's order) step `step` holds.
    pub(crate) fn step_words(&self, size: Size, step: usize) -> Range<usize> {
        self.words_of(size, step)..self.words_of(size, step + 1)
    }

    /// How many of a tile's words the first `steps` steps hold.
    pub(crate) fn words_of(&self, size: Size, steps: usize) -> usize {
        // For V a width is whole, so that `groups` needn't be a multiple of eight.
        let eighths = usize::from(self.cuts.width(self.kind, steps).eighths());
        size.groups * eighths / 8
    }

    fn sizes(&self) -> impl Iterator<Item = Size> + '_ {
        self.tiles().map(|tile| self.size(tile.tokens))
    }

    fn elements(&self) -> usize {
        self.sizes().map(|size| size.groups * size.lanes).sum()
    }
}

fn clamp(position: usize, start: u32, end: u32) -> u32 {
    u32::try_from(position)
        .unwrap_or(u32::MAX)
        .clamp(start, end)
}
