//! What the policy is told by this node: what steps cost, what was accepted, and how fast the link is.
//!
//! Without an operator a node evaluates the policy itself; the functions are the same ones.

use std::time::Duration;

use lynx_engine::AnchorInfo;
use lynx_policy::{
    Acceptance, Bounds, Costs, DraftInputs, Fidelity, Inputs, MAX_DEPTH, Objective, Prior,
    choose_width, draft_depth,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

use super::messages::AnchorWidths;

/// Used until a step was measured: a small model on a few cores.
const TOKEN_TIME: Duration = Duration::from_millis(25);
/// What a drafted token adds to a verification, as a share of a decode step, until it was measured: weights are read once
/// for all.
const VERIFIED_SHARE: u32 = 5;
/// After this long, half of what was accepted is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Parameters, sinks and window of a prompt of some thousand tokens, in bits an element.
const OVERHEAD: f64 = 0.6;
/// Tokens that must fit in before the rest is due, for a comparison with a finer KV to be of use.
const WORTHWHILE: u32 = 2;
/// No draft starts on fewer bits: what it would gain in time it loses in its first tokens.
const LEAST_BITS: u8 = 3;

/// What this node has learned about drafting.
#[derive(Debug)]
pub(super) struct Drafting {
    acceptance: Acceptance,
    verified_token: Option<Duration>,
}

impl Drafting {
    /// Nothing but the prior.
    pub(super) fn new() -> Self {
        Self {
            acceptance: Acceptance::new(Prior::PROFILE, HALF_LIFE),
            verified_token: None,
        }
    }

    /// The anchor's mean width for a transfer of `kv` bytes of BF16 over a link of this rate: the one that should give the
    /// 32nd verified token soonest.
    pub(super) fn width(
        &self,
        kv: Bytes,
        link: BitRate,
        fidelity: Fidelity,
        token_time: Duration,
        now: Timestamp,
    ) -> Width {
        let least = Width::from_bits(LEAST_BITS).unwrap_or_default();
        let bounds = Bounds::new(least, Width::FULL);
        let Some(bounds) = bounds else { return least };
        let inputs = Inputs {
            objective: Objective::Verified,
            bounds,
            link,
            kv,
            costs: self.costs(token_time),
            fidelity,
            overhead: OVERHEAD,
            acceptance: &self.acceptance,
            now,
        };
        choose_width(&inputs).width
    }

    /// How deep to draft on an anchor of this width where the rest is due in `due_in`, `drafted` tokens into the draft.
    pub(super) fn anchor_info(
        &self,
        anchor: AnchorWidths,
        due_in: Option<Duration>,
        drafted: u32,
        token_time: Duration,
        now: Timestamp,
    ) -> AnchorInfo {
        let costs = self.costs(token_time);
        let rate = mean_width(anchor).map_or(0.0, |width| self.acceptance.rate(width, now));
        // The limit counts from the draft's first token, so the window does too.
        let full_due_in = due_in.map_or(Duration::MAX, |due_in| due_in + costs.token * drafted);
        let limit = MAX_DEPTH;
        AnchorInfo {
            residual_due: due_in.map(|due_in| now + due_in),
            depth_limit: draft_depth(&DraftInputs {
                full_due_in,
                rate,
                costs,
                limit,
            }),
        }
    }

    /// Whether to compare `drafted` tokens with the KV as it is now: where the rest is due late enough for that and for going
    /// on with a better draft, and will not be once the next level is here (`due_from_next` before the rest), when the
    /// comparison would tell more.
    pub(super) fn is_time_to_redraft(
        &self,
        due_in: Option<Duration>,
        due_from_next: Option<Duration>,
        drafted: u32,
        token_time: Duration,
    ) -> bool {
        let costs = self.costs(token_time);
        let least = costs.verification + costs.verified_token * drafted + costs.token * WORTHWHILE;
        let pays = |due: Duration| due > least;
        // Only what will surely be worth it later is put off.
        let will_pay = |due: Duration| due > least + least / 2;
        drafted > 0 && due_in.is_some_and(pays) && !due_from_next.is_some_and(will_pay)
    }

    /// Notes what a verification that took `time` came to.
    pub(super) fn learn(
        &mut self,
        anchor: AnchorWidths,
        (drafted, accepted): (u32, u32),
        time: Duration,
        token_time: Duration,
        now: Timestamp,
    ) {
        if let Some(width) = mean_width(anchor) {
            self.acceptance.record(width, drafted, accepted, now);
        }
        let extra = time.saturating_sub(self.costs(token_time).token);
        self.verified_token = extra.checked_div(drafted).or(self.verified_token);
    }

    fn costs(&self, token_time: Duration) -> Costs {
        let token = if token_time.is_zero() {
            TOKEN_TIME
        } else {
            token_time
        };
        Costs {
            token,
            verification: token,
            verified_token: self.verified_token.unwrap_or(token / VERIFIED_SHARE),
        }
    }
}

/// The mean over K and V.
fn mean_width(anchor: AnchorWidths) -> Option<Width> {
    let eighths = f64::midpoint(anchor.k, f64::from(anchor.v)) * 8.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "widths are 0 to 8 bits"
    )]
    Width::from_eighths(eighths as u8)
}
