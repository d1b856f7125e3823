//! The shape of a KV cache, and which of its tokens travel raw.

use core::fmt;
use core::ops::Range;

/// The largest head dimension the codec takes.
pub(crate) const MAX_HEAD_DIM: usize = 256;

/// The shape of a model's KV cache (of one tensor-parallel rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Layers: 1 to 1024.
    pub layers: usize,
    /// KV heads a layer: 1 to 1024.
    pub kv_heads: usize,
    /// Channels a head: a multiple of 8, up to 256.
    pub head_dim: usize,
}

/// A shape that the codec can't take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the KV shape {0} can't be coded: layers and heads must be 1 to 1024, head_dim a multiple of 8 up to 256"
)]
pub struct ShapeError(pub KvShape);

impl KvShape {
    /// Whether the codec takes this shape.
    ///
    /// # Errors
    /// Where a number is outside the ranges that the fields state.
    pub fn check(self) -> Result<Self, ShapeError> {
        let counts = 1..=1024;
        let channels = 8..=MAX_HEAD_DIM;
        if counts.contains(&self.layers)
            && counts.contains(&self.kv_heads)
            && channels.contains(&self.head_dim)
            && self.head_dim.is_multiple_of(8)
        {
            Ok(self)
        } else {
            Err(ShapeError(self))
        }
    }
}

impl fmt::Display for KvShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layers,
            kv_heads,
            head_dim,
        } = self;
        write!(
            f,
            "{layers} layers x {kv_heads} heads x {head_dim} channels"
        )
    }
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Keys, after rotary embedding: a group is a channel over a block's tokens.
    K,
    /// Values: a group is a token over a head's channels.
    V,
}

impl Kind {
    /// Both, in the order of a transfer's units.
    pub const ALL: [Self; 2] = [Self::K, Self::V];
}

/// The tokens of a sequence that travel in BF16 with the anchor: those at positions `< sinks` or `>= window_start`.
/// Attention leans on the first positions, and the last ones hold the question; both cost little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawTokens {
    sinks: u32,
    window_start: u32,
}

impl RawTokens {
    /// Positions `< sinks` or `>= window_start`.
    pub const fn new(sinks: u32, window_start: u32) -> Self {
        Self {
            sinks,
            window_start,
        }
    }

    /// For a prompt of `prompt_tokens` (counted from the sequence's start): 4 sinks and the last `min(16, tokens / 64)`.
    pub fn for_prompt(prompt_tokens: u32) -> Self {
        Self::new(4, prompt_tokens - (prompt_tokens / 64).min(16))
    }

    /// No raw tokens.
    pub const fn none() -> Self {
        Self::new(0, u32::MAX)
    }

    /// How many positions at the sequence's start are raw.
    pub const fn sinks(self) -> u32 {
        self.sinks
    }

    /// The first raw position of the window at the prompt's end; `u32::MAX` where there is none.
    pub const fn window_start(self) -> u32 {
        self.window_start
    }

    /// The positions of `tokens` that aren't raw: one run, as raw ones lie at both ends.
    pub(crate) fn coded(self, tokens: Range<u32>) -> Range<u32> {
        let start = tokens.start.max(self.sinks).min(tokens.end);
        start..tokens.end.min(self.window_start).max(start)
    }
}
