//! How wide an anchor is, how deep to draft on it, and what was learned about both.

use std::collections::VecDeque;
use std::time::Duration;

use lynx_policy::{
    Acceptance, Bounds, Costs, DraftInputs, Fidelity, Inputs, MAX_DEPTH, Objective, Prior,
    choose_width, draft_depth,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

/// Used until a step was measured: a small model on a few cores.
const TOKEN_TIME: Duration = Duration::from_millis(25);
/// What a drafted token adds to a verification, as a share of a decode step, until it was measured: weights are read once
/// for all.
const VERIFIED_SHARE: u32 = 5;
/// How many of the last measurements of that count. Their median: a machine that stood still for a moment is one of them.
const MEASUREMENTS: usize = 5;
/// How long each counts. Who drafts no more, because it seemed too dear, measures no more either, and has to try again.
const MEASURED_FOR: Duration = Duration::from_secs(60);
/// After this long, half of what was accepted is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Parameters, sinks and window of a prompt of some thousand tokens, in bits an element.
const OVERHEAD: f64 = 0.6;
/// Tokens that must fit in before the rest is due, for a comparison with a finer KV to be of use.
const WORTHWHILE: u32 = 2;

/// What an agent has learned about drafting with its engine.
#[derive(Debug)]
pub struct Drafting {
    acceptance: Acceptance,
    /// A step that evaluates one token, as the engine reports it; zero before the first.
    token_time: Duration,
    /// What a drafted token added to the last verifications, and when.
    verified: VecDeque<(Duration, Timestamp)>,
    depth_limit: u32,
}

/// What a width is chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The transfer's KV as BF16.
    pub kv: Bytes,
    /// What the link carries; zero where nobody knows.
    pub link: BitRate,
    /// What "full" means.
    pub fidelity: Fidelity,
    /// What is to be hastened.
    pub objective: Objective,
    /// The widths that may be chosen.
    pub bounds: Bounds,
}

/// When what is missing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// All of it; `None` where nobody can tell.
    pub all: Option<Duration>,
    /// How long before that the next level is complete; `None` where there is none before the last, or nobody can tell.
    pub from_next: Option<Duration>,
}

impl Default for Drafting {
    fn default() -> Self {
        Self::new()
    }
}

impl Drafting {
    /// Nothing but the prior.
    pub fn new() -> Self {
        Self {
            acceptance: Acceptance::new(Prior::PROFILE, HALF_LIFE),
            token_time: Duration::ZERO,
            verified: VecDeque::with_capacity(MEASUREMENTS),
            depth_limit: MAX_DEPTH,
        }
    }

    /// Notes what one token takes; zero is not measured yet.
    pub fn set_token_time(&mut self, token_time: Duration) {
        self.token_time = token_time;
    }

    /// Drafts no deeper than this, whatever would pay.
    pub fn set_depth_limit(&mut self, tokens: u32) {
        self.depth_limit = tokens.min(MAX_DEPTH);
    }

    /// The anchor's mean width for what is to be sent: the one that should serve the objective best.
    pub fn width(&self, what: &Wanted, now: Timestamp) -> Width {
        choose_width(&Inputs {
            objective: what.objective,
            bounds: what.bounds,
            link: what.link,
            kv: what.kv,
            costs: self.costs(now),
            fidelity: what.fidelity,
            overhead: OVERHEAD,
            acceptance: &self.acceptance,
            now,
        })
        .width
    }

    /// How deep to draft on an anchor of this mean width, `drafted` tokens into the draft.
    pub fn depth(&self, anchor: Width, due: Due, drafted: u32, now: Timestamp) -> u32 {
        let costs = self.costs(now);
        // The limit counts from the draft's first token, so the window does too.
        let full_due_in = due
            .all
            .map_or(Duration::MAX, |due_in| due_in + costs.token * drafted);
        draft_depth(&DraftInputs {
            full_due_in,
            rate: self.acceptance.rate(anchor, now),
            costs,
            limit: self.depth_limit,
        })
    }

    /// Whether to compare `drafted` tokens with the KV as it is now: where the rest is due late enough for that and for
    /// going on with a better draft, and will not be once the next level is here, when the comparison would tell more.
    pub fn is_time_to_redraft(&self, due: Due, drafted: u32, now: Timestamp) -> bool {
        let costs = self.costs(now);
        let least = costs.verification + costs.verified_token * drafted + costs.token * WORTHWHILE;
        let pays = |due: Duration| due > least;
        // Only what will surely be worth it later is put off.
        let will_pay = |due: Duration| due > least + least / 2;
        drafted > 0 && due.all.is_some_and(pays) && !due.from_next.is_some_and(will_pay)
    }

    /// Notes that of `drafted` tokens on an anchor of this mean width `accepted` stood, in a step of `time`.
    pub fn learn(
        &mut self,
        anchor: Width,
        (drafted, accepted): (u32, u32),
        time: Duration,
        now: Timestamp,
    ) {
        self.acceptance.record(anchor, drafted, accepted, now);
        let extra = time.saturating_sub(self.costs(now).token);
        if let Some(each) = extra.checked_div(drafted) {
            if self.verified.len() == MEASUREMENTS {
                self.verified.pop_front();
            }
            self.verified.push_back((each, now));
        }
    }

    /// The median of what was measured lately.
    fn verified_token(&self, now: Timestamp) -> Option<Duration> {
        let lately = self.verified.iter().rev();
        let lately = lately.take_while(|(_, at)| now.saturating_since(*at) < MEASURED_FOR);
        let mut sorted = [Duration::ZERO; MEASUREMENTS];
        let mut count = 0;
        for (place, (each, _)) in sorted.iter_mut().zip(lately) {
            *place = *each;
            count += 1;
        }
        let sorted = sorted.get_mut(..count)?;
        sorted.sort_unstable();
        // Of an even number the cheaper: who drafts learns more.
        sorted.get(count.saturating_sub(1) / 2).copied()
    }

    fn costs(&self, now: Timestamp) -> Costs {
        let token = if self.token_time.is_zero() {
            TOKEN_TIME
        } else {
            self.token_time
        };
        Costs {
            token,
            verification: token,
            verified_token: self.verified_token(now).unwrap_or(token / VERIFIED_SHARE),
        }
    }
}

/// The mean over K and V of an anchor's widths: K's mean in eighths of a bit, V's in bits.
pub fn mean_width(k_eighths: u8, v_bits: u8) -> Width {
    let eighths = (u16::from(k_eighths) + u16::from(v_bits) * 8) / 2;
    u8::try_from(eighths)
        .ok()
        .and_then(Width::from_eighths)
        .unwrap_or(Width::FULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::ORIGIN;

    fn four() -> Width {
        Width::from_bits(4).unwrap()
    }

    fn due(all_ms: u64, from_next_ms: Option<u64>) -> Due {
        Due {
            all: Some(Duration::from_millis(all_ms)),
            from_next: from_next_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn nobody_drafts_for_two_tokens_time_or_beyond_the_policys_limit() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        assert_eq!(drafting.depth(four(), due(5, None), 0, NOW), 0);
        assert!(drafting.depth(four(), due(5000, None), 0, NOW) > 8);
        drafting.set_depth_limit(8);
        assert_eq!(drafting.depth(four(), Due::default(), 0, NOW), 8);
        drafting.set_depth_limit(0);
        assert_eq!(drafting.depth(four(), Due::default(), 0, NOW), 0);
    }

    #[test]
    fn what_is_drafted_already_does_not_count_twice() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        let fresh = drafting.depth(four(), due(100, None), 0, NOW);
        assert_eq!(drafting.depth(four(), due(50, None), 5, NOW), fresh);
    }

    #[test]
    fn a_comparison_waits_for_the_level_that_still_leaves_time_for_it() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        // 8 drafted: 10 + 8 * 2 + 20 ms.
        assert!(drafting.is_time_to_redraft(due(47, None), 8, NOW));
        assert!(drafting.is_time_to_redraft(due(100, Some(60)), 8, NOW));
        assert!(!drafting.is_time_to_redraft(due(100, Some(70)), 8, NOW));
        assert!(!drafting.is_time_to_redraft(due(45, None), 8, NOW));
        assert!(!drafting.is_time_to_redraft(due(1000, None), 0, NOW));
        assert!(!drafting.is_time_to_redraft(Due::default(), 8, NOW));
    }

    #[test]
    fn rejected_drafts_make_drafts_shorter_and_a_slow_verification_too() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        let before = drafting.depth(four(), Due::default(), 0, NOW);
        for _ in 0..40 {
            drafting.learn(four(), (16, 2), Duration::from_millis(20), NOW);
        }
        let after = drafting.depth(four(), Due::default(), 0, NOW);
        assert!(after < before, "{after} {before}");
        for _ in 0..MEASUREMENTS {
            drafting.learn(four(), (2, 2), Duration::from_millis(200), NOW);
        }
        assert_eq!(drafting.depth(four(), Due::default(), 0, NOW), 0);
    }

    #[test]
    fn a_machine_that_stood_still_once_goes_on_drafting() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        let usual = Duration::from_millis(30);
        let stalled = Duration::from_secs(3);
        for time in [usual, usual, stalled] {
            drafting.learn(four(), (10, 10), time, NOW);
        }
        assert!(drafting.depth(four(), Due::default(), 0, NOW) > 8);
    }

    #[test]
    fn drafts_that_seemed_too_dear_are_tried_again() {
        let mut drafting = Drafting::new();
        drafting.set_token_time(Duration::from_millis(10));
        drafting.learn(four(), (10, 10), Duration::from_secs(3), NOW);
        assert_eq!(drafting.depth(four(), Due::default(), 0, NOW), 0);
        let later = NOW + MEASURED_FOR;
        assert!(drafting.depth(four(), Due::default(), 0, later) > 8);
    }

    #[test]
    fn the_mean_width_is_over_both() {
        assert_eq!(mean_width(28, 4), Width::from_eighths(30).unwrap());
        assert_eq!(mean_width(255, 255), Width::FULL);
    }
}
