//! What an engine says, checked.

use std::ops::Range;
use std::sync::Arc;

use lynx_proto::engine::v1::{
    CachedBlocks, Finished, Progress, Refused, Report, Sampling, TokenLogprobs, TraceContext,
};

use crate::pool::{Readable, Writable};

/// A message of an engine that has kept the rules so far: everything in it can be used as it is.
#[derive(Debug)]
pub enum Message {
    /// Prefill: the prompt has blocks.
    PrefillStarted {
        /// The request.
        request: u64,
        /// Its blocks, to be read as far as they are published; let go of them before `Release` is sent.
        blocks: Arc<Readable>,
        /// How many tokens from the start on were there already, and are published.
        cached_tokens: u32,
        /// When the engine began, in nanoseconds since the Unix epoch.
        start_unix_ns: u64,
    },
    /// Prefill: more of one layer may be read.
    Published {
        /// The request.
        request: u64,
        /// The layer.
        layer: u32,
        /// The tokens, which follow what was published of this layer before.
        tokens: Range<u32>,
        /// When the pass over the layer began.
        start_unix_ns: u64,
        /// When it ended.
        end_unix_ns: u64,
    },
    /// Prefill: all layers of all tokens are published.
    PrefillDone {
        /// The request.
        request: u64,
        /// The output's first token.
        first_token: u32,
        /// What its row says of it, where that was asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// Decode: a request waits for its KV.
    Expect(Box<Expected>),
    /// Decode: the request's blocks are the agent's until it gives them back.
    WriteGrant {
        /// The request.
        request: u64,
    },
    /// What a step did for a request.
    Progress(Progress),
    /// A request has ended.
    Finished(Finished),
    /// A request was not taken.
    Refused(Refused),
    /// The engine's load and pace.
    Report(Report),
    /// Prefill: what the prefix cache has.
    CachedBlocks(CachedBlocks),
    /// Every prompt is forgotten.
    Forgotten,
    /// The engine is gone; the last message.
    Detached(String),
}

/// A request whose KV is to come.
#[derive(Debug)]
pub struct Expected {
    /// The request.
    pub request: u64,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// The blocks from `from_token` on, the agent's until it says `AnchorReady`, `FullReady` or `KvFailed`. Not granted where
    /// the agent said `Abort` or `Forget` while this was on its way to the role: then the request is not expected any more.
    pub blocks: Writable,
    /// The first token whose KV is lacking.
    pub from_token: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The span that the request belongs to.
    pub trace: TraceContext,
    /// The client's request that it is of, as this agent has numbered it; 0 where it came by another way.
    pub client: u64,
}
