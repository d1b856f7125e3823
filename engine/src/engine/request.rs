//! What is asked of an engine.

use core::fmt;
use core::num::NonZeroUsize;

use crate::{Adjust, BLOCK_TOKENS, Sampling, Stop, TokenId, WorkersError};

/// How large an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// KV blocks of 64 tokens each, for all requests and the prefix cache together.
    pub blocks: u32,
    /// The longest sequence, prompt and output, in tokens; it is never longer than the model's context, or than the blocks
    /// hold.
    pub max_sequence: u32,
    /// Threads of the forward pass.
    pub threads: NonZeroUsize,
    /// How many prompt tokens are evaluated in one step, over all requests: more is faster prefill, and longer steps for
    /// the requests that decode meanwhile.
    pub chunk_tokens: u32,
    /// How many tokens are drafted for one request at most, whatever the policy says.
    pub max_draft: u32,
}

impl Default for EngineOptions {
    /// 16 384 tokens of KV on two threads.
    fn default() -> Self {
        Self {
            blocks: 256,
            max_sequence: u32::MAX,
            threads: NonZeroUsize::MIN.saturating_add(1),
            chunk_tokens: 256,
            max_draft: 64,
        }
    }
}

/// The longest sequence that an engine takes, prompt and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// In tokens.
    pub tokens: usize,
    /// Why it is no longer.
    pub bound: Bound,
}

/// What bounds sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The model's context.
    Context,
    /// The engine's room for KV.
    Room,
}

impl Longest {
    /// What a model's context and this engine's options allow.
    #[must_use]
    pub fn new(context: usize, options: &EngineOptions) -> Self {
        let room = (options.blocks as usize * BLOCK_TOKENS).min(options.max_sequence as usize);
        let bound = if context <= room {
            Bound::Context
        } else {
            Bound::Room
        };
        Self {
            tokens: context.min(room),
            bound,
        }
    }

    /// How many tokens a prompt may have: the output needs a place too.
    #[must_use]
    pub const fn prompt(self) -> usize {
        self.tokens.saturating_sub(1)
    }
}

impl fmt::Display for Longest {
    /// The end of a sentence about a prompt that is too long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, most) = (self.tokens, self.prompt());
        match self.bound {
            Bound::Context => {
                write!(
                    f,
                    "the model's context {tokens}: shorten it to {most} or fewer"
                )
            }
            Bound::Room => write!(
                f,
                "the engine room for {tokens}: shorten it to {most} or fewer, or start the engine with a larger --max-tokens"
            ),
        }
    }
}

/// Where the KV of a request's prompt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSource {
    /// It is computed here.
    Compute,
    /// The caller writes it, see [`Engine::kv_mut`](crate::Engine::kv_mut), and says how far it is.
    Transfer,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// At least one; what [`Longest`] does not leave room for is cut off.
    pub max_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What is done to logits before.
    pub adjust: Adjust,
    /// Whether committed tokens are told with their [`Logprobs`](crate::Logprobs), and of how many of the likeliest.
    pub top_logprobs: Option<u32>,
    /// What else ends the output.
    pub stop: Stop,
    /// Where the prompt's KV comes from.
    pub kv: KvSource,
    /// Whether the KV stays readable after the end, until [`Engine::release`](crate::Engine::release): what a prefill node
    /// asks for, whose transfer takes longer than its request. It has all its blocks from the start, then, and keeps them.
    pub retain: bool,
}

/// A request of one engine. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the KV that was restored is that of the prefill engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// Bit for bit: the prefix cache may keep it.
    Exact,
    /// All planes, and no exact tail: good for this request, and for no other.
    Quantised,
}

/// Why there is no engine over a pool.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The threads can't be started.
    #[error(transparent)]
    Workers(#[from] WorkersError),
    /// A pool of another shape or size.
    #[error(
        "a KV pool of {blocks} blocks is not this model's of {wanted}: make it from the same configuration and options"
    )]
    Pool {
        /// Blocks of the pool.
        blocks: usize,
        /// Blocks that the options say.
        wanted: u32,
    },
}

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Nothing to go on.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// Nothing to do.
    #[error("max_tokens is 0: ask for at least one token")]
    NoTokens,
    /// A token that the model doesn't have.
    #[error(
        "token {token} at position {position} is not in the vocabulary of {vocabulary}: encode the prompt with this model's tokenizer"
    )]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Where it stands.
        position: usize,
        /// How many tokens there are.
        vocabulary: usize,
    },
    /// No room for a first token.
    #[error("the prompt has {prompt} tokens, and {longest}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// What there is room for.
        longest: Longest,
    },
    /// A bias for a token that the model doesn't have.
    #[error("logit_bias names token {token}, which is not in the vocabulary of {vocabulary}")]
    UnknownBias {
        /// The token.
        token: TokenId,
        /// How many tokens there are.
        vocabulary: usize,
    },
    /// Biases or penalties that mean nothing.
    #[error("logit_bias and penalties must be finite numbers")]
    Adjust,
    /// More room than there is at the moment.
    #[error(
        "the prompt and what follows need room for {needed} tokens of KV, and {free} of {total} are free: try again when a request has ended"
    )]
    NoRoom {
        /// Tokens of the blocks that it would begin with.
        needed: usize,
        /// Tokens of the blocks that could be had, prefix cache included.
        free: usize,
        /// Tokens of all blocks.
        total: usize,
    },
    /// Requests that were preempted come first.
    #[error(
        "{0} requests that came before wait for room for their KV: try again when one has ended"
    )]
    OthersWait(usize),
}

impl SubmitError {
    /// Whether the same request can succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NoRoom { .. } | Self::OthersWait(_))
    }
}

/// A request that is not, or no longer, the engine's: signals that cross its end meet this, and mean nothing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {0} is not running here: it has ended, or was never submitted")]
pub struct UnknownRequest(pub RequestId);
