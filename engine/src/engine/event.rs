//! What an engine tells.

use core::ops::Range;

use super::request::RequestId;
use super::view::SequenceKv;
use crate::{FinishReason, Logprobs, TokenId};

/// Something that happened to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineEvent {
    /// The prompt's KV was computed here. Said again when a request that was preempted has its KV back.
    PrefillDone {
        /// The request.
        request: RequestId,
        /// The token that the last row gives: the output's first, or the last one that was known before.
        first: TokenId,
        /// What the row says of it, where the request asks for that and the token is its output's first.
        logprobs: Option<Box<Logprobs>>,
    },
    /// The request has given its blocks to an older one, and waits for others. Its output stands.
    Preempted {
        /// The request.
        request: RequestId,
    },
    /// A token of the output. A committed one replaces a provisional one of its index.
    Token {
        /// The request.
        request: RequestId,
        /// Which token of the output, from 0.
        index: u32,
        /// The token.
        token: TokenId,
        /// Drafted and not verified: only for clients that asked for such tokens.
        provisional: bool,
        /// Where the request asks for them and the token is committed.
        logprobs: Option<Box<Logprobs>>,
    },
    /// The provisional tokens from an index on are void.
    Retracted {
        /// The request.
        request: RequestId,
        /// The first void index.
        from_index: u32,
    },
    /// The drafted tokens were compared with what a finer KV gives.
    Redrafted {
        /// The request.
        request: RequestId,
        /// How many there were.
        drafted: u32,
        /// How many of them, from the first on, the finer KV gives too.
        kept: u32,
    },
    /// The drafted tokens were verified.
    Verified {
        /// The request.
        request: RequestId,
        /// How many there were.
        drafted: u32,
        /// How many of them, from the first on, the full KV gives too.
        accepted: u32,
    },
    /// The transfer failed, and the prompt is computed here.
    Recomputing {
        /// The request.
        request: RequestId,
        /// Why, as the caller said.
        reason: String,
    },
    /// The request ended. Nothing about it follows.
    Finished {
        /// The request.
        request: RequestId,
        /// Why.
        reason: FinishReason,
    },
}

impl EngineEvent {
    /// Whom it happened to.
    pub const fn request(&self) -> RequestId {
        match self {
            Self::PrefillDone { request, .. }
            | Self::Preempted { request }
            | Self::Token { request, .. }
            | Self::Retracted { request, .. }
            | Self::Redrafted { request, .. }
            | Self::Verified { request, .. }
            | Self::Recomputing { request, .. }
            | Self::Finished { request, .. } => *request,
        }
    }
}

/// Who watches a step from inside.
pub trait StepObserver {
    /// The KV of these prompt tokens is in place for this layer: it can be sent while the next layer is computed. A request
    /// that was preempted, which none is whose KV is retained, says it again.
    fn layer_ready(
        &mut self,
        request: RequestId,
        layer: usize,
        tokens: Range<u32>,
        kv: SequenceKv<'_>,
    ) {
        _ = (request, layer, tokens, kv);
    }
}

/// Nobody watches.
impl StepObserver for () {}
