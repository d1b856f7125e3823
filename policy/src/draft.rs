//! Whether to draft, and how deep.

use core::time::Duration;

use crate::Costs;

/// No draft is deeper than this, whatever the wait.
pub const MAX_DEPTH: u32 = 64;

/// Tokens of wait below which drafting is not worth its bookkeeping: what it could gain is within the noise of a link
/// estimate.
const LEAST_WINDOW: f64 = 2.0;

/// What [`draft_depth`] is a function of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftInputs {
    /// How long until the full KV is there, from the moment drafting would start.
    pub full_due_in: Duration,
    /// The chance that a drafted token is accepted: [`Acceptance::rate`](crate::Acceptance::rate) at the anchor's width.
    pub rate: f64,
    /// What the engine takes.
    pub costs: Costs,
    /// The deployment's own limit; [`MAX_DEPTH`] holds besides.
    pub limit: u32,
}

/// How many tokens to draft while the residual is on its way; zero means to wait for it.
///
/// None where the residual is due within two tokens' time, or where verifying is expected to cost more than the
/// accepted tokens save. No deeper than fits the wait, and no token whose chance to be reached and right, times a
/// decode step, is below what it adds to the verification.
pub fn draft_depth(inputs: &DraftInputs) -> u32 {
    let token = inputs.costs.token.as_nanos().max(1);
    let fits = inputs.full_due_in.as_nanos() / token;
    let fits = u32::try_from(fits).unwrap_or(u32::MAX);
    let depth = fits.min(inputs.limit).min(MAX_DEPTH);
    let worth = worth_drafting(f64::from(depth), inputs.rate, &inputs.costs);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in 0..=MAX_DEPTH; a fraction of a token is no token"
    )]
    let whole = worth as u32;
    whole
}

/// Expected accepted tokens of a draft of `tokens`: `rate + rate^2 + ..`; a fraction of a token counts in proportion.
pub fn expected_accepted(rate: f64, tokens: f64) -> f64 {
    let (mut sum, mut reached, mut left) = (0.0, 1.0, tokens);
    while left > 0.0 {
        reached *= rate;
        sum += reached * left.min(1.0);
        left -= 1.0;
    }
    sum
}

/// How many of `window` tokens are worth drafting, zero if drafting isn't. Fractions are kept: a choice of width that
/// counted whole tokens would see steps where a real link only jitters.
pub(crate) fn worth_drafting(window: f64, rate: f64, costs: &Costs) -> f64 {
    if window < LEAST_WINDOW {
        return 0.0;
    }
    let saved = costs.token.as_secs_f64();
    let added = costs.verified_token.as_secs_f64();
    let (mut depth, mut reached) = (0.0, 1.0);
    while depth < window && depth < f64::from(MAX_DEPTH) {
        reached *= rate;
        if reached * saved < added {
            break;
        }
        depth += 1.0;
    }
    let depth = depth.min(window).min(f64::from(MAX_DEPTH));
    if expected_accepted(rate, depth) * saved > costs.extra(depth) {
        depth
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        token: Duration::from_millis(15),
        verification: Duration::from_millis(20),
        verified_token: Duration::from_millis(1),
    };

    fn depth(milliseconds: u64, rate: f64) -> u32 {
        draft_depth(&DraftInputs {
            full_due_in: Duration::from_millis(milliseconds),
            rate,
            costs: COSTS,
            limit: MAX_DEPTH,
        })
    }

    #[test]
    fn the_depth_follows_wait_and_acceptance() {
        for (milliseconds, rate, expected, why) in [
            (0, 0.97, 0, "the residual is there"),
            (29, 0.97, 0, "due within two tokens' time"),
            (31, 0.97, 2, "two tokens fit"),
            (300, 0.97, 20, "the wait bounds the depth"),
            (
                60_000,
                0.97,
                64,
                "no wait is long enough for more than the most",
            ),
            (60_000, 1.0, 64, "sure of each token"),
            (
                60_000,
                0.8,
                12,
                "the 13th is reached in 5 % of drafts: 0.8 ms saved, 1 ms added",
            ),
            (
                60_000,
                0.3,
                0,
                "0.4 accepted tokens do not pay for a verification",
            ),
            (60_000, 0.0, 0, "nothing is ever accepted"),
        ] {
            assert_eq!(depth(milliseconds, rate), expected, "{why}");
        }
    }

    #[test]
    fn a_deployments_limit_holds() {
        let inputs = DraftInputs {
            full_due_in: Duration::from_secs(60),
            rate: 0.99,
            costs: COSTS,
            limit: 8,
        };
        assert_eq!(draft_depth(&inputs), 8);
        assert_eq!(draft_depth(&DraftInputs { limit: 0, ..inputs }), 0);
    }

    #[test]
    fn an_engine_without_measured_costs_does_not_divide_by_zero() {
        let inputs = DraftInputs {
            full_due_in: Duration::from_secs(1),
            rate: 0.9,
            costs: Costs {
                token: Duration::ZERO,
                verification: Duration::ZERO,
                verified_token: Duration::ZERO,
            },
            limit: MAX_DEPTH,
        };
        assert_eq!(draft_depth(&inputs), 0);
    }

    #[test]
    fn acceptance_never_makes_a_draft_shallower() {
        for milliseconds in [20, 45, 100, 700, 5000] {
            let depths =
                (0..=100u32).map(|percent| depth(milliseconds, f64::from(percent) / 100.0));
            assert!(depths.is_sorted(), "{milliseconds} ms");
        }
    }
}
