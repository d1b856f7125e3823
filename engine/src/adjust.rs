//! What a client wants of logits beyond the model's: biases, and penalties for what the output has already.
//!
//! A pure function of a row and of the output before it, and not a state that grows with the output: a drafted and a
//! verified row at one place have the same output before them, so that both are judged alike, and nothing has to be taken
//! back with a rejected draft. A penalty sees the output alone and not the prompt, as in OpenAI's interface.

use std::collections::BTreeMap;

use crate::TokenId;

/// What is added to logits, and taken from them, before a token is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjust {
    /// Added to a token's logit.
    pub bias: BTreeMap<TokenId, f32>,
    /// Taken from the logit of a token that the output has.
    pub presence: f32,
    /// Taken for each time that the output has a token.
    pub frequency: f32,
}

impl Adjust {
    /// Whether logits stay as they are.
    pub fn is_nothing(&self) -> bool {
        self.bias.is_empty() && self.presence == 0.0 && self.frequency == 0.0
    }

    /// Whether all numbers are finite.
    pub fn is_finite(&self) -> bool {
        let penalties = self.presence.is_finite() && self.frequency.is_finite();
        penalties && self.bias.values().all(|bias| bias.is_finite())
    }

    /// Changes the row that gives the token after `output`. Tokens that the row does not have are ignored.
    pub fn apply(&self, logits: &mut [f32], output: &[TokenId]) {
        for (&token, bias) in &self.bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        if self.presence == 0.0 && self.frequency == 0.0 {
            return;
        }
        let mut counts = BTreeMap::<TokenId, u16>::new();
        for &token in output {
            let count = counts.entry(token).or_default();
            *count = count.saturating_add(1);
        }
        for (token, count) in counts {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= self.presence + self.frequency * f32::from(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_are_added_and_penalties_count_the_output() {
        let adjust = Adjust {
            bias: [(1, 2.0), (9, 5.0)].into(),
            presence: 0.5,
            frequency: 0.25,
        };
        let mut logits = [1.0; 4];
        adjust.apply(&mut logits, &[2, 1, 2, 8]);
        let expected = [1.0, 1.0 + 2.0 - 0.75, 1.0 - 0.5 - 0.5, 1.0];
        assert_eq!(logits.map(f32::to_bits), expected.map(f32::to_bits));
        assert!(!adjust.is_nothing() && adjust.is_finite());
        assert!(Adjust::default().is_nothing());
    }

    #[test]
    fn the_order_of_the_output_does_not_matter() {
        bolero::check!().with_type::<(Vec<u8>, i8, i8)>().for_each(
            |(output, presence, frequency)| {
                let adjust = Adjust {
                    bias: BTreeMap::new(),
                    presence: f32::from(*presence) / 64.0,
                    frequency: f32::from(*frequency) / 64.0,
                };
                let mut output: Vec<_> = output.iter().map(|token| TokenId::from(*token)).collect();
                let row = |output: &[TokenId]| {
                    let mut row = vec![0.5; 256];
                    adjust.apply(&mut row, output);
                    row.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                let forwards = row(&output);
                output.reverse();
                assert_eq!(forwards, row(&output));
            },
        );
    }
}
