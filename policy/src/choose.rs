//! Which mean anchor width.

use core::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp, Width};

use crate::cost::Arrival;
use crate::draft::worth_drafting;
use crate::{Acceptance, Costs, DraftInputs, Fidelity, draft_depth, expected_accepted};

/// BF16 bits of an element.
const BF16_BITS: f64 = 16.0;
/// The token whose verified arrival [`Objective::Verified`] hastens.
const VERIFIED_TOKENS: f64 = 32.0;
/// How many provisional tokens [`Objective::FirstTokens`] looks at.
const PROVISIONAL_TOKENS: u32 = 8;

/// What a deployment wants hastened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The first provisional tokens: time to the anchor, plus one token's time for each of the first eight tokens that
    /// is expected to be taken back. The link's share grows with the width and with the transfer, the tokens' share
    /// does not depend on the link, so a slower link never gets a wider anchor.
    FirstTokens,
    /// The 32nd verified token, in expectation.
    Verified,
}

/// The widths that a deployment allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: Width,
    max: Width,
}

impl Bounds {
    /// From `min` to `max`, both allowed; `None` where `min` is the wider.
    pub const fn new(min: Width, max: Width) -> Option<Self> {
        if min.eighths() <= max.eighths() {
            Some(Self { min, max })
        } else {
            None
        }
    }

    /// `width`, moved into the bounds.
    pub fn clamp(self, width: Width) -> Width {
        width.clamp(self.min, self.max)
    }
}

/// What [`choose_width`] is a function of.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// What to hasten.
    pub objective: Objective,
    /// What is allowed.
    pub bounds: Bounds,
    /// The link's delivery rate; zero where it isn't known yet.
    pub link: BitRate,
    /// BF16 bytes of a typical request's KV.
    pub kv: Bytes,
    /// What the decode engine takes.
    pub costs: Costs,
    /// What "full" means.
    pub fidelity: Fidelity,
    /// Mean bits an element that the anchor takes besides its codes: parameters, sinks, window. About 0.5.
    pub overhead: f64,
    /// What was accepted so far.
    pub acceptance: &'a Acceptance,
    /// The moment on the clock that the acceptance was recorded by.
    pub now: Timestamp,
}

/// A width, and what it is expected to give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The mean width of the anchor.
    pub width: Width,
    /// What follows from it; `None` where the link's rate isn't known.
    pub expected: Option<Expected>,
}

/// Times count from the start of the transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// When the anchor is there.
    pub anchor: Duration,
    /// When everything is there.
    pub full: Duration,
    /// How many tokens a transfer of this size drafts; zero where drafting isn't worth it.
    pub depth: u32,
    /// How many of those are accepted in the mean.
    pub accepted: f64,
    /// When the 32nd verified token is there, in the mean.
    pub verified: Duration,
}

/// The width within the bounds that serves the objective best.
///
/// Candidates are the widths of the acceptance's prior and the two bounds. Of equals the narrowest wins: it is the one
/// that still helps if the link turns out slower. While the link's rate is unknown, or there is nothing to send, the
/// answer is four bits, moved into the bounds.
pub fn choose_width(inputs: &Inputs<'_>) -> Choice {
    let Some(seconds_per_bit) = seconds_per_bit(inputs) else {
        let four = Width::from_bits(4).unwrap_or(Width::FULL);
        return Choice {
            width: inputs.bounds.clamp(four),
            expected: None,
        };
    };
    let Bounds { min, max } = inputs.bounds;
    let mut best = min;
    let mut least = cost(inputs, min, seconds_per_bit);
    let between = inputs.acceptance.prior().widths();
    for width in between
        .filter(|width| (min..max).contains(width))
        .chain([max])
    {
        let cost = cost(inputs, width, seconds_per_bit);
        if cost < least {
            (best, least) = (width, cost);
        }
    }
    Choice {
        width: best,
        expected: Some(expected(inputs, best, seconds_per_bit)),
    }
}

/// How long one bit of every element takes on the link.
fn seconds_per_bit(inputs: &Inputs<'_>) -> Option<f64> {
    let bf16 = inputs.link.time_for(inputs.kv)?.as_secs_f64();
    (bf16 > 0.0).then_some(bf16 / BF16_BITS)
}

fn arrival(inputs: &Inputs<'_>, width: Width, seconds_per_bit: f64) -> Arrival {
    let anchor = width.bits() + inputs.overhead;
    let full = inputs.fidelity.bits_per_element(inputs.overhead);
    Arrival {
        anchor: anchor * seconds_per_bit,
        full: full.max(anchor) * seconds_per_bit,
    }
}

/// Seconds; only the difference between two widths has a meaning.
fn cost(inputs: &Inputs<'_>, width: Width, seconds_per_bit: f64) -> f64 {
    match inputs.objective {
        Objective::FirstTokens => first_tokens(inputs, width, seconds_per_bit),
        Objective::Verified => verified(inputs, width, seconds_per_bit),
    }
}

fn first_tokens(inputs: &Inputs<'_>, width: Width, seconds_per_bit: f64) -> f64 {
    let rate = inputs.acceptance.rate(width, inputs.now);
    let tokens = f64::from(PROVISIONAL_TOKENS);
    let taken_back = tokens - expected_accepted(rate, tokens);
    arrival(inputs, width, seconds_per_bit).anchor + taken_back * inputs.costs.token.as_secs_f64()
}

/// The mean time of the 32nd verified token: the verification gives the accepted tokens and one more, decode steps
/// give the rest.
fn verified(inputs: &Inputs<'_>, width: Width, seconds_per_bit: f64) -> f64 {
    let token = inputs.costs.token.as_secs_f64();
    let Arrival { anchor, full } = arrival(inputs, width, seconds_per_bit);
    let rate = inputs.acceptance.rate(width, inputs.now);
    let depth = worth_drafting((full - anchor) / token, rate, &inputs.costs);
    let steps_only = full + VERIFIED_TOKENS * token;
    if depth > 0.0 {
        let accepted = expected_accepted(rate, depth.min(VERIFIED_TOKENS - 1.0));
        steps_only + inputs.costs.extra(depth) - accepted * token
    } else {
        steps_only
    }
}

fn expected(inputs: &Inputs<'_>, width: Width, seconds_per_bit: f64) -> Expected {
    let Arrival { anchor, full } = arrival(inputs, width, seconds_per_bit);
    let rate = inputs.acceptance.rate(width, inputs.now);
    let depth = draft_depth(&DraftInputs {
        full_due_in: duration(full - anchor),
        rate,
        costs: inputs.costs,
        limit: crate::MAX_DEPTH,
    });
    Expected {
        anchor: duration(anchor),
        full: duration(full),
        depth,
        accepted: expected_accepted(rate, f64::from(depth)),
        verified: duration(verified(inputs, width, seconds_per_bit)),
    }
}

/// Longest where the seconds are too many to hold, zero where they are negative.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
