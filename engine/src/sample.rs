//! Sampling: the token that a row of logits gives at a position.
//!
//! The token is a pure function of (logits, [`Sampling`], position). The noise comes from a counter, a hash of seed,
//! position and token, and not from a generator with a state: a generator would have to be rewound for every rejected
//! draft, and two engines could not agree on where it stands. A drafted and a verified token at one position therefore
//! see the same noise, and differ only where their logits do.
//!
//! Sampling itself is the Gumbel-max trick: the argmax of `logit / temperature + gumbel` is a draw from the softmax of
//! `logit / temperature` (Gumbel 1954; Maddison et al. 2014, "A* sampling").

pub(crate) mod exact;

use core::cmp::Ordering;

use crate::TokenId;
use exact::{exp_of_negative, ln};

/// How tokens are chosen. Temperature first, then top-k, then top-p over what top-k has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    seed: u64,
}

/// Sampling parameters that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A temperature below zero, infinite or not a number.
    #[error("temperature is {0}: give a number from 0 (greedy) up")]
    Temperature(f32),
    /// A nucleus outside (0, 1].
    #[error("top_p is {0}: give a number above 0 and up to 1 (1 keeps every token)")]
    TopP(f32),
}

/// A token and its logit: what filters rank.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) token: TokenId,
    pub(crate) logit: f32,
}

impl Sampling {
    /// Always the most likely token; the lowest id among equals.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        seed: 0,
    };

    /// `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 keep every token; equal seeds give equal noise.
    ///
    /// # Errors
    /// Where a parameter means nothing; the error names it.
    pub fn new(temperature: f32, top_k: u32, top_p: f32, seed: u64) -> Result<Self, SamplingError> {
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(SamplingError::Temperature(temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SamplingError::TopP(top_p));
        }
        Ok(Self {
            temperature,
            top_k,
            top_p,
            seed,
        })
    }

    /// Whether the most likely token is always taken.
    pub const fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// The token at `position` of the sequence (the prompt's first token has position 0), given the logits of the row
    /// before it. A logit that is not a number counts as the lowest. `logits` must not be empty; an empty row gives 0.
    pub fn sample(&self, logits: &[f32], position: u32) -> TokenId {
        if self.is_greedy() {
            return best(ranked(logits).map(|c| (c.token, f64::from(c.logit))));
        }
        let noise = Noise::new(self.seed, position);
        if self.top_k == 0 && self.top_p >= 1.0 {
            self.noisiest(ranked(logits), &noise)
        } else {
            self.noisiest(self.filtered(logits).into_iter(), &noise)
        }
    }

    /// The token with the highest `logit / temperature + gumbel`.
    fn noisiest(&self, candidates: impl Iterator<Item = Candidate>, noise: &Noise) -> TokenId {
        let temperature = f64::from(self.temperature);
        let mut record = f64::NEG_INFINITY;
        best(candidates.filter_map(|c| {
            let score = f64::from(c.logit) / temperature;
            let uniform = noise.uniform(c.token);
            // Two logarithms a token are what sampling costs, and most tokens are too far behind to win.
            if beyond_reach(record - score, uniform) {
                return None;
            }
            let score = score + gumbel(uniform);
            record = record.max(score);
            Some((c.token, score))
        }))
    }

    /// The candidates that top-k and top-p keep.
    fn filtered(&self, logits: &[f32]) -> Vec<Candidate> {
        let mut kept: Vec<_> = ranked(logits).collect();
        let k = usize::try_from(self.top_k).unwrap_or(usize::MAX);
        if (1..kept.len()).contains(&k) {
            kept.select_nth_unstable_by(k - 1, by_rank);
            kept.truncate(k);
        }
        if self.top_p < 1.0 {
            kept = self.nucleus(kept);
        }
        kept
    }

    /// The fewest most likely candidates whose probabilities reach `top_p`.
    fn nucleus(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        // The order of a sum decides its last bit, so it is fixed here.
        candidates.sort_unstable_by_key(|c| c.token);
        let highest = candidates.iter().map(|c| c.logit).fold(f32::MIN, f32::max);
        let temperature = f64::from(self.temperature);
        let weight = |c: Candidate| {
            let below = f64::from(c.logit) - f64::from(highest);
            (c, exp_of_negative(below / temperature))
        };
        let mut weighed: Vec<_> = candidates.into_iter().map(weight).collect();
        let total: f64 = weighed.iter().map(|(_, weight)| weight).sum();
        let wanted = f64::from(self.top_p) * total;
        // Candidates below this weight hold less than 1 - top_p all together (the total is at least 1), so that the
        // nucleus never needs them: what is left to sort is short.
        #[expect(clippy::cast_precision_loss, reason = "a count of tokens")]
        let least = (1.0 - f64::from(self.top_p)) / weighed.len() as f64;
        weighed.retain(|(_, weight)| *weight >= least);
        weighed.sort_unstable_by(|(a, _), (b, _)| by_rank(a, b));
        let mut held = 0.0;
        let inside = weighed
            .iter()
            .take_while(|(_, weight)| {
                let open = held < wanted;
                held += weight;
                open
            })
            .count();
        weighed.truncate(inside.max(1));
        weighed
            .into_iter()
            .map(|(candidate, _)| candidate)
            .collect()
    }
}

/// Every token with a finite logit.
pub(crate) fn ranked(logits: &[f32]) -> impl Iterator<Item = Candidate> {
    (0..).zip(logits).map(|(token, &logit)| Candidate {
        token,
        logit: if logit.is_nan() {
            f32::MIN
        } else {
            logit.clamp(f32::MIN, f32::MAX)
        },
    })
}

/// Likelier first, then the lower id.
pub(crate) fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The token with the highest score; the lowest id among equals, in whatever order they come.
fn best(scores: impl Iterator<Item = (TokenId, f64)>) -> TokenId {
    let wins = |(token, score): (TokenId, f64), (other, record): (TokenId, f64)| {
        score > record || (score.total_cmp(&record).is_eq() && token < other)
    };
    scores
        .reduce(|record, next| if wins(next, record) { next } else { record })
        .map_or(0, |(token, _)| token)
}

/// The noise of one position.
struct Noise {
    key: u64,
}

impl Noise {
    fn new(seed: u64, position: u32) -> Self {
        Self {
            key: mix(mix(seed) ^ u64::from(position)),
        }
    }

    /// A number in (0, 1).
    fn uniform(&self, token: TokenId) -> f64 {
        let bits = mix(self.key ^ (u64::from(token) << 32));
        #[expect(clippy::cast_precision_loss, reason = "52 bits are exact")]
        let uniform = ((bits >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64);
        uniform
    }
}

/// A draw from the standard Gumbel distribution, by inversion.
fn gumbel(uniform: f64) -> f64 {
    -ln(-ln(uniform))
}

/// Whether `gumbel(uniform)` is below `gap` for certain, told without a logarithm: it is where `-ln u > e^-gap`, and
/// `-ln u >= 1 - u`, and `e^gap >= 1 + gap + gap^2 / 2`. The margin is far above what rounding can do.
fn beyond_reach(gap: f64, uniform: f64) -> bool {
    gap > 0.0 && (1.0 - uniform) * (1.0 + gap + gap * gap / 2.0) > 1.000_001
}

/// A bijection of 64 bits in which every input bit reaches every output bit: the finaliser of `SplitMix64` (Steele, Lea
/// and Flood 2014) after one step of its counter.
const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f32, top_k: u32, top_p: f32) -> Sampling {
        Sampling::new(temperature, top_k, top_p, 7).unwrap()
    }

    /// How often each token is sampled at 20 000 positions.
    fn frequencies(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let draws = 20_000_u32;
        let mut counts = vec![0.0; logits.len()];
        for position in 0..draws {
            counts[sampling.sample(logits, position) as usize] += 1.0 / f64::from(draws);
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_of_the_best() {
        let logits = [0.0, 3.0, f32::NAN, 3.0, -1.0];
        assert_eq!(Sampling::GREEDY.sample(&logits, 9), 1);
        assert_eq!(Sampling::GREEDY.sample(&[f32::NAN; 3], 0), 0);
        assert_eq!(Sampling::GREEDY.sample(&[], 0), 0);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [1.0_f32, 0.0, 2.0, -1.0];
        for temperature in [0.5_f32, 1.0, 2.0] {
            let weights = logits.map(|l| f64::from(l / temperature).exp());
            let total: f64 = weights.iter().sum();
            let seen = frequencies(sampling(temperature, 0, 1.0), &logits);
            for (token, weight) in weights.iter().enumerate() {
                let expected = weight / total;
                // Four standard errors of a binomial share.
                let error = 4.0 * (expected * (1.0 - expected) / 20_000.0).sqrt();
                assert!(
                    (seen[token] - expected).abs() < error,
                    "token {token} at temperature {temperature}: {} for {expected}",
                    seen[token]
                );
            }
        }
    }

    #[test]
    fn top_k_keeps_the_k_best_and_the_lower_id_among_equals() {
        let seen = frequencies(sampling(1.0, 2, 1.0), &[0.0, 1.0, 0.0, 1.0, 1.0]);
        assert!(seen[1] > 0.4 && seen[3] > 0.4);
        assert!(seen[0] + seen[2] + seen[4] < 1e-9);
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [0.25_f32.ln(), 0.5_f32.ln(), 0.125_f32.ln(), 0.125_f32.ln()];
        let kept = |top_p| {
            let seen = frequencies(sampling(1.0, 0, top_p), &logits);
            seen.iter().filter(|share| **share > 0.0).count()
        };
        assert_eq!(kept(0.4), 1);
        assert_eq!(kept(0.6), 2);
        assert_eq!(kept(0.8), 3);
        assert_eq!(kept(0.99), 4);
    }

    #[test]
    fn a_nucleus_of_a_long_row_is_that_of_a_full_sort() {
        bolero::check!()
            .with_type::<(Vec<i8>, u8)>()
            .for_each(|(row, percent)| {
                let logits: Vec<f32> = row.iter().map(|l| f32::from(*l) / 16.0).collect();
                let top_p = f32::from(percent % 99 + 1) / 100.0;
                let sampling = sampling(1.0, 0, top_p);
                let ours: Vec<_> = sampling.filtered(&logits).iter().map(|c| c.token).collect();

                let mut all: Vec<_> = ranked(&logits).collect();
                let highest = logits.iter().copied().fold(f32::MIN, f32::max);
                let weight = |c: &Candidate| f64::from(c.logit - highest).exp();
                let total: f64 = all.iter().map(weight).sum();
                all.sort_by(by_rank);
                let mut held = 0.0;
                let mut plain = Vec::new();
                for candidate in &all {
                    if !plain.is_empty() && held >= f64::from(top_p) * total - 1e-9 {
                        break;
                    }
                    held += weight(candidate);
                    plain.push(candidate.token);
                }
                assert!(
                    ours.len().abs_diff(plain.len()) <= 1
                        && ours.starts_with(&plain[..plain.len().min(ours.len())]),
                    "{ours:?} for {plain:?}"
                );
            });
    }

    #[test]
    fn only_noise_that_is_too_low_is_beyond_reach() {
        let noise = Noise::new(3, 4);
        let mut spared = 0;
        for token in 0..10_000 {
            let uniform = noise.uniform(token);
            for gap in [-1.0, 1e-9, 0.1, 1.0, 4.0, 12.0, 700.0, f64::INFINITY] {
                if beyond_reach(gap, uniform) {
                    assert!(gumbel(uniform) < gap, "{uniform} reaches {gap}");
                    spared += 1;
                }
            }
        }
        assert!(spared > 40_000, "only {spared} are told apart");
    }

    #[test]
    fn the_noise_depends_on_seed_position_and_token_alone() {
        let logits = [0.0_f32; 64];
        let at = |seed, position| {
            Sampling::new(1.0, 0, 1.0, seed)
                .unwrap()
                .sample(&logits, position)
        };
        assert_eq!(at(1, 5), at(1, 5));
        let differs = (0..50).filter(|p| at(1, *p) != at(2, *p)).count();
        assert!(differs > 40, "{differs} of 50 differ between two seeds");
        let differs = (0..50).filter(|p| at(1, *p) != at(1, *p + 1)).count();
        assert!(differs > 40, "{differs} of 50 differ between neighbours");
    }

    /// The bits of the whole chain: a change of any constant shows here, and would break peers of different versions.
    #[test]
    fn a_sampled_sequence_is_pinned() {
        let logits: Vec<f32> = (0..32_i16).map(|i| f32::from(i * 7 % 16) / 4.0).collect();
        let tokens: Vec<_> = (0..16)
            .map(|p| sampling(0.8, 20, 0.9).sample(&logits, p))
            .collect();
        assert_eq!(
            tokens,
            [29, 25, 18, 18, 25, 18, 20, 25, 18, 9, 20, 9, 18, 2, 29, 29]
        );
    }

    #[test]
    fn parameters_that_mean_nothing_are_refused_by_name() {
        for temperature in [-0.1, f32::NAN, f32::INFINITY] {
            let error = Sampling::new(temperature, 0, 1.0, 0).unwrap_err();
            assert!(error.to_string().contains("temperature"), "{error}");
        }
        for top_p in [0.0, 1.1, f32::NAN] {
            let error = Sampling::new(1.0, 0, top_p, 0).unwrap_err();
            assert!(error.to_string().contains("top_p"), "{error}");
        }
    }
}
