//! The text of an output while it grows.

use std::sync::Arc;

use super::Tokenizer;
use crate::TokenId;

/// Turns tokens into text that can be sent at once: never half a character, and never what may turn out to be the
/// beginning of a stop string. A clone renders provisional tokens without touching what was committed.
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Arc<Tokenizer>,
    stops: Vec<String>,
    held: Vec<u8>,
    /// Bytes of tokens, from the first on, that are told.
    told: usize,
    stopped: bool,
}

impl TextStream {
    /// An empty text, which ends before the first of the `stops` (empty ones are ignored).
    pub fn new(tokenizer: Arc<Tokenizer>, stops: Vec<String>) -> Self {
        Self {
            tokenizer,
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: Vec::new(),
            told: 0,
            stopped: false,
        }
    }

    /// The text that is certain now and was not before.
    pub fn push(&mut self, token: TokenId) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.extend_from_slice(self.tokenizer.piece(token));
        let found = self
            .stops
            .iter()
            .filter_map(|stop| find(&self.held, stop.as_bytes()));
        if let Some(at) = found.min() {
            self.stopped = true;
            self.held.truncate(at);
            return self.rest();
        }
        let sure = self.held.len() - self.possible_stop();
        let mut text = String::new();
        let mut sent = 0;
        for chunk in self.held[..sure].utf8_chunks() {
            text.push_str(chunk.valid());
            sent += chunk.valid().len();
            let invalid = chunk.invalid();
            // The start of a character may still be completed.
            let at_end = sent + invalid.len() == sure;
            let open = core::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            let pending = at_end && open;
            if !invalid.is_empty() && !pending {
                text.push(char::REPLACEMENT_CHARACTER);
                sent += invalid.len();
            }
        }
        self.held.drain(..sent);
        self.told += sent;
        text
    }

    /// How many bytes of all tokens' pieces the text told so far stands for.
    pub const fn told(&self) -> usize {
        self.told
    }

    /// What was held back, when no token follows.
    pub fn rest(&mut self) -> String {
        self.told += self.held.len();
        String::from_utf8_lossy(&core::mem::take(&mut self.held)).into_owned()
    }

    /// The length of the longest end of the text with which a stop string begins.
    fn possible_stop(&self) -> usize {
        let longest = |stop: &String| {
            let stop = stop.as_bytes();
            (1..stop.len())
                .rev()
                .find(|&n| self.held.ends_with(&stop[..n]))
        };
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}

/// Where `wanted`, which is not empty, first occurs.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}
