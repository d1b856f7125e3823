//! What the demo's processes tell each other, one JSON object a line.
//!
//! The parent talks to its nodes over their standard input and output, so that a node whose parent is gone reads the end
//! of its input and leaves. The decode node asks the prefill node over a connection of its own, one for each request. KV
//! never travels here: that is the transfer protocol's business.

use std::net::SocketAddr;

use lynx_units::Width;
use serde::{Deserialize, Serialize};

use crate::run::{Event, Method, Scenario};

/// What the parent tells a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Prefill node: compute this prompt and keep its KV.
    Warm {
        /// The prompt.
        prompt: Vec<u32>,
    },
    /// Forget every prompt.
    Forget,
    /// Decode node: answer this request.
    Run(RunSpec),
}

/// One request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The request's number, higher than that of any request before.
    pub run: u64,
    /// How the KV travels.
    pub method: Method,
    /// What the prefill node holds.
    pub scenario: Scenario,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// How many tokens to answer with at most.
    pub max_tokens: u32,
    /// Greedy, or sampled with this seed.
    pub sampling: Sampling,
    /// Whether the answer goes on past the model's end-of-text token, so that every run has the same length.
    pub ignore_eos: bool,
    /// The anchor's mean width in eighths of a bit; `None` leaves it to the policy.
    pub anchor_eighths: Option<u8>,
}

impl RunSpec {
    /// The anchor's mean width, where the request fixes one.
    pub fn anchor(&self) -> Option<Width> {
        self.anchor_eighths.and_then(Width::from_eighths)
    }
}

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// The share of probability that is sampled from.
    pub top_p: f32,
    /// The noise's seed.
    pub seed: u64,
}

impl Sampling {
    /// The most probable token, always.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_p: 1.0,
        seed: 0,
    };
}

/// What a node tells its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// The node works.
    Ready(Ready),
    /// So many of the prompt's tokens are computed.
    Warming {
        /// Computed tokens.
        done: u32,
        /// All tokens.
        total: u32,
    },
    /// The prompt is computed and kept.
    Warmed,
    /// Every prompt is forgotten.
    Forgotten,
    /// Something happened in a run.
    Happened {
        /// The run.
        run: u64,
        /// What, and when.
        event: Event,
    },
    /// A run has ended.
    Finished {
        /// The run.
        run: u64,
        /// The answer.
        tokens: Vec<u32>,
        /// The anchor's widths, where there was one.
        anchor: Option<AnchorWidths>,
        /// The nodes' largest resident memories so far without the model's weights, prefill's first, in bytes; `None` where the system
        /// doesn't tell.
        memory_bytes: [Option<u64>; 2],
    },
    /// A run, or the node itself, has failed.
    Failed {
        /// The run; `None` where the node can't go on.
        run: Option<u64>,
        /// What went wrong, and the way out.
        message: String,
    },
}

/// What a node that works says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Prefill node: where decode nodes fetch KV.
    pub data: Option<SocketAddr>,
    /// Prefill node: where decode nodes ask for prompts.
    pub control: Option<SocketAddr>,
    /// The model's name.
    pub model: String,
    /// What the engine and the codec compute with, in words.
    pub compute: String,
}

/// The widths of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnchorWidths {
    /// K's mean width in bits.
    pub k: f64,
    /// V's width in bits.
    pub v: u8,
}

/// What the decode node asks of the prefill node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The request, as the decode node got it.
    pub spec: RunSpec,
    /// How its KV is to travel, and under which number.
    pub descriptor: super::coding::Descriptor,
    /// The decode node's name on its link: where the KV is to go.
    pub node: String,
    /// The moment the request arrived, in nanoseconds of the machine's clock: see [`crate::clock`].
    pub start_ns: u64,
}

/// What the prefill node answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The first token of the output.
    First {
        /// The token.
        token: u32,
    },
    /// Something happened at the prefill node.
    Happened {
        /// What, and when.
        event: Event,
    },
    /// The prompt is computed and all of its KV is with the transport.
    Memory {
        /// The prefill node's largest resident memory so far, without the model's weights, in bytes.
        bytes: u64,
    },
    /// The request can't be served.
    Failed {
        /// Why, and the way out.
        message: String,
    },
}
