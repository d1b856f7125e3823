//! Where an output ends: stop tokens, stop strings and a length.

use std::sync::Arc;

use crate::speculate::{Ending, FinishReason};
use crate::{TokenId, Tokenizer};

/// What ends an output before its length does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// Tokens that end it, besides the model's own.
    pub tokens: Vec<TokenId>,
    /// Texts that end it, wherever tokens are cut; [`TextStream`](crate::TextStream) leaves them out of what is sent.
    pub strings: Vec<String>,
    /// Whether the model's own end tokens are output like any other.
    pub ignore_eos: bool,
}

/// [`Stop`] and a length, as a rule over outputs.
#[derive(Debug)]
pub(crate) struct StopRule {
    tokenizer: Arc<Tokenizer>,
    stop: Stop,
    max_tokens: u32,
    longest: usize,
}

impl StopRule {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, mut stop: Stop, max_tokens: u32) -> Self {
        stop.strings.retain(|string| !string.is_empty());
        let longest = stop.strings.iter().map(String::len).max().unwrap_or(0);
        Self {
            tokenizer,
            stop,
            max_tokens,
            longest,
        }
    }

    fn stops_at(&self, token: TokenId) -> bool {
        self.stop.tokens.contains(&token)
            || (!self.stop.ignore_eos && self.tokenizer.ends().contains(&token))
    }

    /// Whether the last token completes a stop string.
    fn completes_string(&self, output: &[TokenId]) -> bool {
        let Some((&last, before)) = output.split_last() else {
            return false;
        };
        let last = self.tokenizer.piece(last);
        if self.longest == 0 || last.is_empty() {
            return false;
        }
        // The text backwards, as far as a stop string that ends in the last token can reach.
        let reach = last.len() + self.longest - 1;
        let pieces = before
            .iter()
            .rev()
            .map(|&token| self.tokenizer.piece(token));
        let backwards = last
            .iter()
            .rev()
            .chain(pieces.flat_map(|piece| piece.iter().rev()));
        let mut window: Vec<u8> = backwards.take(reach).copied().collect();
        window.reverse();
        self.stop.strings.iter().any(|string| {
            let mut places = window.windows(string.len());
            places.any(|place| place == string.as_bytes())
        })
    }
}

impl Ending for StopRule {
    fn reached(&self, output: &[TokenId]) -> Option<FinishReason> {
        let last = *output.last()?;
        if self.stops_at(last) {
            Some(FinishReason::StopToken)
        } else if self.completes_string(output) {
            Some(FinishReason::StopString)
        } else if output.len() >= self.max_tokens as usize {
            Some(FinishReason::Length)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::byte_tokenizer;

    fn rule(stop: Stop) -> StopRule {
        StopRule::new(Arc::new(byte_tokenizer()), stop, 20)
    }

    fn ends(rule: &StopRule, text: &[u8]) -> Option<FinishReason> {
        let output: Vec<_> = text.iter().map(|byte| TokenId::from(*byte)).collect();
        rule.reached(&output)
    }

    #[test]
    fn a_stop_string_ends_the_output_in_whatever_tokens_it_comes() {
        let rule = rule(Stop {
            strings: vec!["\n\n".to_owned(), "END".to_owned(), String::new()],
            ..Stop::default()
        });
        assert_eq!(ends(&rule, b"the EN"), None);
        assert_eq!(ends(&rule, b"the END"), Some(FinishReason::StopString));
        assert_eq!(ends(&rule, b"\n\n"), Some(FinishReason::StopString));
        assert_eq!(ends(&rule, b"\n"), None);
    }

    #[test]
    fn stop_tokens_and_the_models_own_end_the_output() {
        let own = rule(Stop::default());
        assert_eq!(ends(&own, b"a\0"), Some(FinishReason::StopToken));
        let ignored = rule(Stop {
            tokens: vec![7],
            ignore_eos: true,
            ..Stop::default()
        });
        assert_eq!(ends(&ignored, b"a\0"), None);
        assert_eq!(ends(&ignored, b"\x07"), Some(FinishReason::StopToken));
    }

    #[test]
    fn a_stop_token_is_the_better_reason_than_a_length() {
        let rule = rule(Stop::default());
        assert_eq!(ends(&rule, &[b'a'; 20]), Some(FinishReason::Length));
        assert_eq!(ends(&rule, &[b'a'; 19]), None);
        let mut text = [b'a'; 20];
        text[19] = 0;
        assert_eq!(ends(&rule, &text), Some(FinishReason::StopToken));
    }
}
