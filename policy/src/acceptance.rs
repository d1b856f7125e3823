//! What was accepted so far, by width.

use core::time::Duration;

use lynx_units::{Timestamp, Width};

use crate::Prior;
use crate::prior::rate_of_mean;

/// As how many rejected tokens the prior counts where it is asked whether this deployment's text is as hard as the
/// prior's.
const OF_ALL: f64 = 4.0;
/// As how many rejected tokens that answer counts where a single width is asked for.
const OF_ONE: f64 = 8.0;
/// The widths that there are.
const WIDTHS: usize = Width::FULL.eighths() as usize + 1;

/// Decayed counts of accepted and rejected draft tokens by anchor width, on top of a [`Prior`].
///
/// A token of a draft is accepted with the same chance whatever its position, given that all before it were; that one
/// rate per width predicts the measured means of drafts of 2 to 32 tokens within a token. Tokens behind the first
/// rejected one say nothing and are not counted.
///
/// What one width accepts says two things: the rate of that width, and how hard the text is. So the prior's chance of
/// a rejection is first multiplied by one factor for all widths, rejections seen over rejections expected, and then
/// by another for the width itself. Both count rejections, since few of them say little, however many tokens passed. Without the factor, a deployment whose text is harder or easier than the
/// prior's would compare the one width that it uses, as measured, with all others as they were on another text.
#[derive(Clone, Debug)]
pub struct Acceptance {
    prior: Prior,
    /// The prior's rates, which are dear to compute.
    rates: [f64; WIDTHS],
    half_life: Duration,
    counts: [Count; WIDTHS],
    /// Rejections that the prior would have expected of the counted tokens, and those that there were.
    expected: f64,
    seen: f64,
    /// When the counts were last decayed.
    as_of: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    accepted: f64,
    rejected: f64,
}

/// Drafts of one width, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drafts {
    /// How many drafts there were.
    pub drafts: u64,
    /// Their tokens.
    pub drafted: u64,
    /// The right ones, up to the first wrong one of each draft.
    pub accepted: u64,
}

impl Acceptance {
    /// Nothing seen yet. What is seen counts half after `half_life`; a zero half-life forgets at once.
    pub fn new(prior: Prior, half_life: Duration) -> Self {
        let mut rates = [0.0; WIDTHS];
        for (eighths, rate) in (0..).zip(&mut rates) {
            *rate = prior.rate(Width::from_eighths(eighths).unwrap_or(Width::FULL));
        }
        Self {
            prior,
            rates,
            half_life,
            counts: [Count::default(); WIDTHS],
            expected: 0.0,
            seen: 0.0,
            as_of: Timestamp::ORIGIN,
        }
    }

    /// One verified draft: of its `drafted` tokens the first `accepted` were right.
    pub fn record(&mut self, width: Width, drafted: u32, accepted: u32, now: Timestamp) {
        let count = Count {
            accepted: f64::from(accepted.min(drafted)),
            rejected: if accepted < drafted { 1.0 } else { 0.0 },
        };
        self.add(width, count, now);
    }

    /// Many verified drafts of one width, of which only sums are known; they count as `most` drafts at most.
    ///
    /// How many of them were accepted to the end is not in the sums. It is inferred: by the rate at which drafts of the
    /// mean length have the mean number accepted.
    pub fn record_sums(&mut self, width: Width, sums: &Drafts, most: u32, now: Timestamp) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of a few seconds; a share of 1e-15 is no matter"
        )]
        let [drafts, drafted, accepted] = [
            sums.drafts.max(1),
            sums.drafted,
            sums.accepted.min(sums.drafted),
        ]
        .map(|n| n as f64);
        if drafted < 1.0 {
            return;
        }
        // No draft is deeper: whoever says so is wrong, and is not to be computed with for long.
        let mean = (drafted / drafts).min(f64::from(crate::MAX_DEPTH));
        let rate = rate_of_mean(accepted / drafts, mean);
        let rejected = if accepted < 1.0 {
            drafts
        } else {
            (accepted * (1.0 - rate) / rate).min(drafts)
        };
        let weight = (f64::from(most) / drafts).min(1.0);
        let count = Count {
            accepted: accepted * weight,
            rejected: rejected * weight,
        };
        self.add(width, count, now);
    }

    /// The chance that a token drafted at `width` is accepted, given that all before it were.
    pub fn rate(&self, width: Width, now: Timestamp) -> f64 {
        let kept = self.kept(now);
        let all = (OF_ALL + self.seen * kept) / (OF_ALL + self.expected * kept);
        let expected = ((1.0 - self.prior_rate(width)) * all).min(1.0);
        let own = self.counts.get(usize::from(width.eighths()));
        let own = own.copied().unwrap_or_default();
        let tokens = (own.accepted + own.rejected) * kept;
        let one = (OF_ONE + own.rejected * kept) / (OF_ONE + tokens * expected);
        1.0 - (expected * one).min(1.0)
    }

    /// What this started from.
    pub const fn prior(&self) -> Prior {
        self.prior
    }

    fn prior_rate(&self, width: Width) -> f64 {
        let rate = self.rates.get(usize::from(width.eighths()));
        rate.copied().unwrap_or_default()
    }

    fn add(&mut self, width: Width, count: Count, now: Timestamp) {
        let kept = self.kept(now);
        for count in &mut self.counts {
            count.accepted *= kept;
            count.rejected *= kept;
        }
        let tokens = count.accepted + count.rejected;
        self.expected = self.expected * kept + tokens * (1.0 - self.prior_rate(width));
        self.seen = self.seen * kept + count.rejected;
        self.as_of = self.as_of.max(now);
        if let Some(own) = self.counts.get_mut(usize::from(width.eighths())) {
            own.accepted += count.accepted;
            own.rejected += count.rejected;
        }
    }

    /// The share of the counts that is left at `now`.
    fn kept(&self, now: Timestamp) -> f64 {
        let elapsed = now.saturating_since(self.as_of).as_secs_f64();
        if elapsed > 0.0 {
            libm::exp2(-elapsed / self.half_life.as_secs_f64())
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Duration = Duration::from_secs(60);

    fn four() -> Width {
        Width::from_bits(4).unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn without_drafts_the_rate_is_the_priors() {
        let acceptance = Acceptance::new(Prior::PROFILE, HALF_LIFE);
        let rate = acceptance.rate(four(), at(1000));
        assert!((rate - Prior::PROFILE.rate(four())).abs() < 1e-12);
    }

    #[test]
    fn drafts_move_the_rate_of_their_own_width_most() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        for second in 0..20 {
            acceptance.record(four(), 32, 3, at(second));
        }
        // Three of four counted tokens: 0.75, and the prior's weight is nearly gone.
        let rate = acceptance.rate(four(), at(20));
        assert!((0.7..0.85).contains(&rate), "{rate}");
    }

    #[test]
    fn text_that_is_harder_at_one_width_is_harder_at_all() {
        for (accepted, harder) in [(3, true), (32, false)] {
            let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
            for second in 0..20 {
                acceptance.record(four(), 32, accepted, at(second));
            }
            for other in [2, 3, 6, 8].map(|bits| Width::from_bits(bits).unwrap()) {
                let (prior, rate) = (Prior::UNIFORM.rate(other), acceptance.rate(other, at(20)));
                assert_eq!(rate < prior, harder, "{other}: {rate} and {prior}");
            }
        }
    }

    #[test]
    fn sums_teach_what_the_single_drafts_would() {
        for rate in [0.3, 0.9, 0.99] {
            let (mut single, mut sums) = (
                Acceptance::new(Prior::UNIFORM, HALF_LIFE),
                Drafts::default(),
            );
            let mut summed = single.clone();
            // Every quantile of the geometric distribution once: no chance in it.
            for quantile in 0..1000 {
                let chance = (f64::from(quantile) + 0.5) / 1000.0;
                let reached = libm::log(chance) / libm::log(rate);
                let accepted = (0..32).take_while(|n| f64::from(n + 1) < reached).count();
                let accepted = u32::try_from(accepted).unwrap();
                single.record(four(), 32, accepted, at(1));
                sums.drafts += 1;
                sums.drafted += 32;
                sums.accepted += u64::from(accepted);
            }
            summed.record_sums(four(), &sums, 1000, at(1));
            let (one, other) = (single.rate(four(), at(1)), summed.rate(four(), at(1)));
            assert!((one - other).abs() < 0.003, "{rate}: {one} and {other}");
        }
    }

    #[test]
    fn sums_of_nothing_and_of_nonsense_stay_rates() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        for (drafts, drafted, accepted) in [
            (0, 0, 0),
            (3, 96, 0),
            (0, 32, 64),
            (u64::MAX, 1, 1),
            (1, u64::MAX, u64::MAX),
        ] {
            let sums = Drafts {
                drafts,
                drafted,
                accepted,
            };
            acceptance.record_sums(four(), &sums, 100, at(1));
            assert!(
                (0.0..=1.0).contains(&acceptance.rate(four(), at(1))),
                "{sums:?}"
            );
        }
    }

    #[test]
    fn a_wholly_accepted_draft_holds_no_rejection() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        for _ in 0..1000 {
            acceptance.record(four(), 32, 32, at(1));
        }
        let rate = acceptance.rate(four(), at(1));
        assert!((0.999..=1.0).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_long_past_no_longer_counts() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        for _ in 0..10 {
            acceptance.record(four(), 32, 0, at(1));
        }
        let prior = Prior::UNIFORM.rate(four());
        let soon = acceptance.rate(four(), at(2));
        let later = acceptance.rate(four(), at(61));
        let much_later = acceptance.rate(four(), at(3600));
        assert!(soon < later && later < much_later && (prior - much_later).abs() < 1e-6);
    }

    #[test]
    fn decay_does_not_depend_on_how_often_it_is_applied() {
        let mut once = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        once.record(four(), 32, 0, at(0));
        let mut often = once.clone();
        for second in 1..100 {
            often.record(Width::FULL, 0, 0, at(second));
        }
        let difference = once.rate(four(), at(100)) - often.rate(four(), at(100));
        assert!(difference.abs() < 1e-9, "{difference}");
    }

    #[test]
    fn a_clock_that_steps_back_changes_nothing() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        acceptance.record(four(), 32, 0, at(50));
        let before = acceptance.rate(four(), at(50));
        assert!((acceptance.rate(four(), at(10)) - before).abs() < 1e-12);
        acceptance.record(four(), 0, 0, at(10));
        assert!((acceptance.rate(four(), at(50)) - before).abs() < 1e-12);
    }
}
