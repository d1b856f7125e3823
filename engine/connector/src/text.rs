//! The text of one output: of what is verified, and of the drafts after it.
//!
//! What may turn out to be the start of a stop text, or of a character, is held back by [`TextStream`]; here are two of them,
//! since drafts are told before they are certain, and told again when they are.

use std::collections::VecDeque;
use std::sync::Arc;

use lynx_engine::{FinishReason, Logprobs, TextStream, TokenId, Tokenizer};

/// The text so far.
#[derive(Debug)]
pub(crate) struct Text {
    /// Up to the last verified token.
    certain: TextStream,
    /// Up to the last draft.
    drafted: TextStream,
    /// Tokens drafted and not verified.
    drafts: Vec<TokenId>,
    verified: u32,
    /// Whether `drafted` has to be made anew from the other two.
    stale: bool,
    tokenizer: Arc<Tokenizer>,
    /// Bytes of all verified tokens' pieces.
    bytes: usize,
    /// Of verified tokens of which no text is told yet, with where their pieces begin.
    untold: VecDeque<(usize, Logprobs)>,
}

/// Text, and the log probabilities of the tokens that it is of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) text: String,
    pub(crate) logprobs: Vec<Logprobs>,
}

impl Text {
    /// A text that ends before the first of the `stops`.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, stops: Vec<String>) -> Self {
        let stream = TextStream::new(Arc::clone(&tokenizer), stops);
        Self {
            drafted: stream.clone(),
            certain: stream,
            drafts: Vec::new(),
            verified: 0,
            stale: false,
            tokenizer,
            bytes: 0,
            untold: VecDeque::new(),
        }
    }

    /// What a drafted token adds to the drafts' text.
    pub(crate) fn draft(&mut self, token: TokenId) -> String {
        if core::mem::take(&mut self.stale) {
            self.drafted = self.certain.clone();
            for &token in &self.drafts {
                self.drafted.push(token);
            }
        }
        self.drafts.push(token);
        self.drafted.push(token)
    }

    /// What a verified token adds to the certain text. A draft of its place, if there is one, is this token: wrong ones are
    /// retracted before.
    pub(crate) fn verify(&mut self, token: TokenId, logprobs: Option<Logprobs>) -> Told {
        self.verified += 1;
        self.drafts.drain(..self.drafts.len().min(1));
        self.stale = true;
        self.untold
            .extend(logprobs.map(|logprobs| (self.bytes, logprobs)));
        self.bytes += self.tokenizer.piece(token).len();
        let text = self.certain.push(token);
        let logprobs = self.told();
        Told { text, logprobs }
    }

    /// Takes what is known of the tokens that begin in the text told so far.
    fn told(&mut self) -> Vec<Logprobs> {
        let told = self.certain.told();
        let begun = self.untold.iter().take_while(|(start, _)| *start < told);
        let begun = begun.count();
        self.untold.drain(..begun).map(|(_, known)| known).collect()
    }

    /// The drafts from this place of the output on are void.
    pub(crate) fn retract(&mut self, from_index: u32) {
        let kept = from_index.saturating_sub(self.verified) as usize;
        self.drafts.truncate(kept);
        self.stale = true;
    }

    /// What was held back, when no token follows. What only ended the output, a stop token or the tokens of a stop text, is
    /// no part of it.
    pub(crate) fn finish(mut self, reason: FinishReason) -> Told {
        let text = self.certain.rest();
        let logprobs = match reason {
            FinishReason::StopToken | FinishReason::StopString => self.told(),
            FinishReason::Length | FinishReason::Aborted => {
                self.untold.drain(..).map(|(_, known)| known).collect()
            }
        };
        Told { text, logprobs }
    }
}

#[cfg(test)]
mod tests;
