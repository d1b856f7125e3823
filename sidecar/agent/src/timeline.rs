//! What happened to a request and when: what a client that asks for it is told.

use lynx_units::Priority;
use serde::{Deserialize, Serialize};

/// Which of a transfer's two classes bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// What decoding waits for: Lynx's most significant bits, or everything that a method without drafts sends.
    Anchor,
    /// What follows.
    Residual,
}

impl From<Priority> for Class {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Anchor => Self::Anchor,
            Priority::Residual => Self::Residual,
        }
    }
}

/// Something that happened in a run. Every time is in seconds since the request arrived; every `index` counts the answer's
/// tokens from 0. In JSON: `{"event": "token", "index": 0, ...}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "event",
    rename_all = "kebab-case",
    rename_all_fields = "snake_case"
)]
pub enum Event {
    /// The prefill node computed one layer of one chunk of the prompt.
    PrefillLayer {
        /// The chunk of the prompt, from 0.
        chunk: u32,
        /// The model's layer, from 0.
        layer: u32,
        /// When it began.
        start: f64,
        /// When its KV was there.
        end: f64,
    },
    /// Bytes left for the wire.
    Sent {
        /// Their class.
        priority: Class,
        /// All bytes of this class sent so far, headers included.
        bytes: u64,
        /// When.
        t: f64,
    },
    /// The decode node holds everything up to this level: 0 is the anchor, each further one refines it.
    LevelComplete {
        /// The level.
        level: u32,
        /// When.
        t: f64,
    },
    /// The decode engine may draft: the anchor is merged into its blocks.
    AnchorReady {
        /// When.
        t: f64,
    },
    /// The decode engine's blocks hold one more level.
    Refined {
        /// The level.
        level: u32,
        /// When.
        t: f64,
    },
    /// The decode engine's blocks hold all that the method sends.
    FullReady {
        /// When.
        t: f64,
    },
    /// No KV came, and the decode engine computes the prompt itself.
    Recompute {
        /// Why none came.
        reason: String,
        /// When it began.
        t: f64,
    },
    /// One token was drafted on an incomplete KV.
    Draft {
        /// The drafted token.
        index: u32,
        /// When its forward pass began.
        start: f64,
        /// When it ended.
        end: f64,
    },
    /// All drafted tokens were compared, in one forward pass, with what the KV gave by then: a finer one than when they were
    /// drafted.
    Redraft {
        /// How many there were.
        tokens: u32,
        /// How many of them stand so far.
        kept: u32,
        /// When the pass began.
        start: f64,
        /// When it ended.
        end: f64,
    },
    /// All drafted tokens were verified in one forward pass over the full KV.
    Verify {
        /// How many were drafted.
        tokens: u32,
        /// How many of them stand.
        accepted: u32,
        /// When the pass began.
        start: f64,
        /// When it ended.
        end: f64,
    },
    /// One token was decoded on the full KV.
    Decode {
        /// The decoded token.
        index: u32,
        /// When its forward pass began.
        start: f64,
        /// When it ended.
        end: f64,
    },
    /// A token of the answer is known. A drafted one is first told as provisional, and again as not provisional when it is
    /// verified.
    Token {
        /// Its place in the answer.
        index: u32,
        /// The token.
        token: u32,
        /// Its text.
        text: String,
        /// When.
        t: f64,
        /// Whether it may yet be retracted.
        provisional: bool,
    },
    /// The provisional tokens from this one on were wrong.
    Retracted {
        /// The first wrong one.
        from_index: u32,
        /// When.
        t: f64,
    },
    /// The answer is complete.
    Finished {
        /// When.
        t: f64,
    },
    /// What the answer took; after [`Finished`](Self::Finished).
    Summary {
        /// The anchor's widths in bits, where there was one.
        anchor: Option<AnchorWidths>,
        /// The largest resident memories so far without the model's weights, in bytes: of the prefill node, and of the
        /// decode node, agent and engine together; `None` where unknown.
        memory_bytes: [Option<u64>; 2],
    },
}

/// The widths of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnchorWidths {
    /// K's mean width in bits.
    pub k: f64,
    /// V's width in bits.
    pub v: u8,
}

impl Event {
    /// When it ended, or happened; 0 for what has no time.
    pub const fn end_s(&self) -> f64 {
        match self {
            Self::PrefillLayer { end, .. }
            | Self::Draft { end, .. }
            | Self::Redraft { end, .. }
            | Self::Verify { end, .. }
            | Self::Decode { end, .. } => *end,
            Self::Sent { t, .. }
            | Self::LevelComplete { t, .. }
            | Self::AnchorReady { t }
            | Self::Refined { t, .. }
            | Self::FullReady { t }
            | Self::Recompute { t, .. }
            | Self::Token { t, .. }
            | Self::Retracted { t, .. }
            | Self::Finished { t } => *t,
            Self::Summary { .. } => 0.0,
        }
    }
}
