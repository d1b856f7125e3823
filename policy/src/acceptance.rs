//! What was accepted so far, by width.

use core::time::Duration;

use lynx_units::{Timestamp, Width};

use crate::Prior;

/// As how many observed tokens the prior counts: two or three drafts outweigh it.
const PRIOR_TOKENS: f64 = 64.0;

/// Decayed counts of accepted and rejected draft tokens by anchor width, on top of a [`Prior`].
///
/// A token of a draft is accepted with the same chance whatever its position, given that all before it were; that one
/// rate per width predicts the measured means of drafts of 2 to 32 tokens within a token. Tokens behind the first
/// rejected one say nothing and are not counted. Widths are learnt separately: what one width accepts is no evidence
/// on how much another loses.
#[derive(Clone, Debug)]
pub struct Acceptance {
    prior: Prior,
    half_life: Duration,
    counts: [Count; Width::FULL.eighths() as usize + 1],
    /// When the counts were last decayed.
    as_of: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    accepted: f64,
    rejected: f64,
}

impl Acceptance {
    /// Nothing seen yet. What is seen counts half after `half_life`; a zero half-life forgets at once.
    pub fn new(prior: Prior, half_life: Duration) -> Self {
        Self {
            prior,
            half_life,
            counts: [Count::default(); Width::FULL.eighths() as usize + 1],
            as_of: Timestamp::ORIGIN,
        }
    }

    /// One verified draft: of its `drafted` tokens the first `accepted` were right.
    pub fn record(&mut self, width: Width, drafted: u32, accepted: u32, now: Timestamp) {
        let kept = self.kept(now);
        for count in &mut self.counts {
            count.accepted *= kept;
            count.rejected *= kept;
        }
        self.as_of = self.as_of.max(now);
        if let Some(count) = self.counts.get_mut(usize::from(width.eighths())) {
            count.accepted += f64::from(accepted.min(drafted));
            count.rejected += if accepted < drafted { 1.0 } else { 0.0 };
        }
    }

    /// The chance that a token drafted at `width` is accepted, given that all before it were.
    pub fn rate(&self, width: Width, now: Timestamp) -> f64 {
        let kept = self.kept(now);
        let seen = self
            .counts
            .get(usize::from(width.eighths()))
            .copied()
            .unwrap_or_default();
        let accepted = seen.accepted * kept;
        let tokens = accepted + seen.rejected * kept;
        (PRIOR_TOKENS * self.prior.rate(width) + accepted) / (PRIOR_TOKENS + tokens)
    }

    /// What this started from.
    pub const fn prior(&self) -> Prior {
        self.prior
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
    fn drafts_move_the_rate_of_their_own_width_only() {
        let mut acceptance = Acceptance::new(Prior::UNIFORM, HALF_LIFE);
        for second in 0..20 {
            acceptance.record(four(), 32, 3, at(second));
        }
        // Three of four counted tokens: 0.75, and the prior's weight is nearly gone.
        let rate = acceptance.rate(four(), at(20));
        assert!((0.75..0.9).contains(&rate), "{rate}");
        let six = Width::from_bits(6).unwrap();
        let untouched = acceptance.rate(six, at(20));
        assert!((untouched - Prior::UNIFORM.rate(six)).abs() < 1e-12);
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
