//! The forward pass: tokens of one or several sequences through all layers.
//!
//! A call takes *spans*, each some consecutive new tokens of one sequence: a whole prompt or a piece of it, one token to decode,
//! or a draft to verify. Their keys and values go into the pool, and logits come out for the rows that ask for them. What a
//! token gets depends on its sequence up to it and on nothing else, to the last bit: not on how the sequence was cut into
//! spans, on what else is in the call, on the number of threads or on the instructions in use. All promises about verified
//! output rest on that.

mod attend;
mod norm;
mod pass;
mod rotary;
mod scratch;
#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::kv::{BLOCK_TOKENS, BlockId, KvPool};
use crate::model::{Model, TokenId};
use crate::workers::Workers;

pub(crate) use scratch::Scratch;

/// Some consecutive new tokens of a sequence.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The tokens; at least one.
    pub tokens: &'a [TokenId],
    /// The position of the first of them. The keys and values of all positions before must be in the pool.
    pub start: u32,
    /// The sequence's blocks: block `i` has positions `64 i` to `64 i + 63`. No other span of the call may write to the blocks
    /// that this one writes to.
    pub blocks: &'a [BlockId],
    /// Which rows get logits.
    pub logits: LogitsFor,
}

/// Which rows of a span get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogitsFor {
    /// None: only keys and values are wanted.
    None,
    /// The last one.
    Last,
    /// Each one.
    All,
}

impl Span<'_> {
    /// How many rows of logits the span gets.
    #[must_use]
    pub fn logit_rows(&self) -> usize {
        match self.logits {
            LogitsFor::None => 0,
            LogitsFor::Last => 1,
            LogitsFor::All => self.tokens.len(),
        }
    }
}

/// Scores of all tokens of the vocabulary, a row per token of the input that asked for them, in the order of the spans.
#[derive(Debug, Default)]
pub struct Logits {
    vocab: usize,
    data: Vec<f32>,
}

impl Logits {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.data.len().checked_div(self.vocab).unwrap_or(0)
    }

    /// One row: a score per token.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.vocab..][..self.vocab]
    }
}

/// Someone who looks on while a forward pass runs.
pub trait Observer {
    /// The keys and values that this pass computes for a layer are in the pool, those of all spans.
    fn layer_written(&mut self, layer: usize, pool: &KvPool) {
        _ = (layer, pool);
    }

    /// Whether [`Self::queries`] is to be called, which costs a copy.
    fn wants_queries(&self) -> bool {
        false
    }

    /// The queries of a layer, `[row][head][channel]`, rows in the order of the spans, after the rotary embedding (channels
    /// in half-split order) and before the scores' division by the root of the channels.
    fn queries(&mut self, layer: usize, queries: &[f32]) {
        _ = (layer, queries);
    }
}

/// Nobody looks on.
impl Observer for () {}

/// Why a forward pass was refused. Nothing has been written then.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// A span has no tokens.
    #[error("span {span} has no tokens: leave it out")]
    Empty {
        /// The span's place in the call.
        span: usize,
    },
    /// A token is not in the vocabulary.
    #[error(
        "token {token} of span {span} is not in the vocabulary of {vocab} tokens: use the tokenizer of this model"
    )]
    Token {
        /// The span's place in the call.
        span: usize,
        /// The token.
        token: TokenId,
        /// The vocabulary's size.
        vocab: usize,
    },
    /// A sequence is longer than the model can read.
    #[error(
        "span {span} ends at token {end}, but the model reads at most {context}: shorten the prompt or the answer"
    )]
    TooLong {
        /// The span's place in the call.
        span: usize,
        /// The length of the sequence with the span.
        end: usize,
        /// The longest sequence.
        context: usize,
    },
    /// A block table is too short.
    #[error("span {span} ends at token {end}, but its {blocks} blocks hold {}: allocate more", blocks * BLOCK_TOKENS)]
    Blocks {
        /// The span's place in the call.
        span: usize,
        /// The length of the sequence with the span.
        end: usize,
        /// The length of the block table.
        blocks: usize,
    },
    /// A block table names a block that the pool does not have.
    #[error(
        "span {span} names block {block}, but the pool has {blocks}: its block table is of another pool"
    )]
    NoSuchBlock {
        /// The span's place in the call.
        span: usize,
        /// The block.
        block: u32,
        /// The pool's blocks.
        blocks: usize,
    },
    /// The pool was made for a model of another shape.
    #[error("the KV pool was made for another model: make one with this model's configuration")]
    Pool,
}

impl Model {
    /// Runs new tokens of some sequences through the model: writes their keys and values into the pool, and the logits that
    /// the spans ask for into `out`, whose former content is dropped.
    ///
    /// # Errors
    /// If a span, the pool and the model do not fit together; nothing has been written then.
    pub fn forward(
        &self,
        workers: &Workers,
        pool: &mut KvPool,
        spans: &[Span<'_>],
        observer: &mut dyn Observer,
        out: &mut Logits,
    ) -> Result<(), ForwardError> {
        check(&self.config, pool, spans)?;
        out.vocab = self.config.vocab;
        out.data.clear();
        if !spans.is_empty() {
            pass::run(self, workers, pool, spans, observer, out);
        }
        Ok(())
    }
}

fn check(config: &Config, pool: &KvPool, spans: &[Span<'_>]) -> Result<(), ForwardError> {
    if !pool.fits(config) {
        return Err(ForwardError::Pool);
    }
    let (vocab, context) = (config.vocab, config.context);
    for (
        span,
        Span {
            tokens,
            start,
            blocks,
            ..
        },
    ) in spans.iter().enumerate()
    {
        let end = *start as usize + tokens.len();
        if tokens.is_empty() {
            return Err(ForwardError::Empty { span });
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(ForwardError::Token { span, token, vocab });
        }
        if end > context {
            return Err(ForwardError::TooLong { span, end, context });
        }
        let Some(used) = blocks.get(..end.div_ceil(BLOCK_TOKENS)) else {
            let blocks = blocks.len();
            return Err(ForwardError::Blocks { span, end, blocks });
        };
        if let Some(block) = used.iter().find(|block| block.0 as usize >= pool.blocks()) {
            let (block, blocks) = (block.0, pool.blocks());
            return Err(ForwardError::NoSuchBlock {
                span,
                block,
                blocks,
            });
        }
    }
    Ok(())
}
