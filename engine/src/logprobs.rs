//! How likely a token was: the logarithm of the softmax of a row of logits.
//!
//! The model's own probabilities: before biases and penalties, temperature, top-k and top-p, which say how a token is chosen
//! and not how likely it was. As a sample, it is a pure function of the row, from additions, multiplications and divisions
//! only, so that every machine tells the same bits.

use crate::TokenId;
use crate::sample::exact::{exp_of_negative, ln};
use crate::sample::{by_rank, ranked};

/// A token, and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: TokenId,
    /// At most 0.
    pub logprob: f32,
}

/// What a row of logits says of the token that was chosen, and of the likeliest ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token of the output.
    pub chosen: Logprob,
    /// The likeliest tokens, the likeliest first, and the lower id among equals. The chosen one may be one of them.
    pub top: Vec<Logprob>,
}

impl Logprobs {
    /// Of this token and of the `top` likeliest. A logit that is not a number counts as the lowest; a token that the row does
    /// not have gets the lowest number that there is.
    pub fn new(logits: &[f32], token: TokenId, top: u32) -> Self {
        let highest = ranked(logits).map(|c| c.logit).fold(f32::MIN, f32::max);
        let below = |logit: f32| f64::from(logit) - f64::from(highest);
        let total: f64 = ranked(logits)
            .map(|c| exp_of_negative(below(c.logit)))
            .sum();
        let log_total = if total > 0.0 { ln(total) } else { 0.0 };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest f32 is what is told"
        )]
        let logprob = |logit| (below(logit) - log_total).max(f64::from(f32::MIN)) as f32;
        let mut candidates: Vec<_> = ranked(logits).collect();
        let chosen = candidates.get(token as usize).map(|c| logprob(c.logit));
        let count = usize::try_from(top).unwrap_or(usize::MAX);
        if (1..candidates.len()).contains(&count) {
            candidates.select_nth_unstable_by(count - 1, by_rank);
        }
        candidates.truncate(count);
        candidates.sort_unstable_by(by_rank);
        Self {
            chosen: Logprob {
                token,
                logprob: chosen.unwrap_or(f32::MIN),
            },
            top: candidates
                .iter()
                .map(|c| Logprob {
                    token: c.token,
                    logprob: logprob(c.logit),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_are_in_order() {
        bolero::check!()
            .with_type::<(Vec<i16>, u8, u8)>()
            .for_each(|(row, token, top)| {
                let logits: Vec<f32> = row.iter().map(|l| f32::from(*l) / 512.0).collect();
                if logits.is_empty() {
                    return;
                }
                let token = u32::from(*token) % u32::try_from(logits.len()).unwrap();
                let all = Logprobs::new(&logits, token, u32::MAX);
                let sum: f64 = all.top.iter().map(|t| f64::from(t.logprob).exp()).sum();
                assert!((sum - 1.0).abs() < 1e-5, "they sum to {sum}");
                let in_order = |pair: &[Logprob]| pair[0].logprob >= pair[1].logprob;
                assert!(all.top.windows(2).all(in_order));
                assert!(all.top.contains(&all.chosen));
                let some = Logprobs::new(&logits, token, u32::from(*top));
                assert_eq!(some.top, all.top[..all.top.len().min(usize::from(*top))]);
                assert_eq!(some.chosen, all.chosen);
            });
    }

    #[test]
    fn they_are_the_logarithms_of_the_softmax() {
        let logits = [1.5_f32, -2.0, 0.25, 1.5];
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        for (token, logit) in (0..).zip(logits) {
            let told = Logprobs::new(&logits, token, 2);
            let expected = f64::from(logit) - total.ln();
            assert!((f64::from(told.chosen.logprob) - expected).abs() < 1e-6);
            assert_eq!(told.top.iter().map(|t| t.token).collect::<Vec<_>>(), [0, 3]);
        }
    }

    #[test]
    fn strange_rows_give_numbers_that_can_be_told() {
        for logits in [
            vec![],
            vec![f32::NAN; 3],
            vec![f32::INFINITY, 0.0],
            vec![f32::NEG_INFINITY; 2],
        ] {
            let told = Logprobs::new(&logits, 1, 5);
            assert!(told.chosen.logprob.is_finite() && told.chosen.logprob <= 0.0);
            assert!(told.top.iter().all(|t| t.logprob.is_finite()), "{told:?}");
        }
    }
}
