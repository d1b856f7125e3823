//! The text of one output: of what is verified, and of the drafts after it.
//!
//! What may turn out to be the start of a stop text, or of a character, is held back by [`TextStream`]; here are two of them,
//! since drafts are told before they are certain, and told again when they are.

use lynx_engine::{TextStream, TokenId};

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
}

impl Text {
    pub(crate) fn new(stream: TextStream) -> Self {
        Self {
            drafted: stream.clone(),
            certain: stream,
            drafts: Vec::new(),
            verified: 0,
            stale: false,
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
    pub(crate) fn verify(&mut self, token: TokenId) -> String {
        self.verified += 1;
        self.drafts.drain(..self.drafts.len().min(1));
        self.stale = true;
        self.certain.push(token)
    }

    /// The drafts from this place of the output on are void.
    pub(crate) fn retract(&mut self, from_index: u32) {
        let kept = from_index.saturating_sub(self.verified) as usize;
        self.drafts.truncate(kept);
        self.stale = true;
    }

    /// What was held back, when no token follows.
    pub(crate) fn finish(self) -> String {
        self.certain.finish()
    }
}

#[cfg(test)]
mod tests;
