//! Which mean anchor width.

use core::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp, Width};

use crate::draft::worth_drafting;
use crate::{Acceptance, Arrival, Costs, DraftInputs, Fidelity, draft_depth, expected_accepted};

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

impl Objective {
    /// What a request costs that gets its KV at these times, where a drafted token is accepted with chance `rate`:
    /// seconds, of which only the difference between two widths has a meaning.
    pub fn cost(self, arrival: Arrival, rate: f64, costs: &Costs) -> f64 {
        match self {
            Self::FirstTokens => first_tokens(arrival, rate, costs),
            Self::Verified => verified(arrival, rate, costs),
        }
    }
}

impl Inputs<'_> {
    /// The widths that a choice is between, ascending: those of the acceptance's prior within the bounds, and the bounds.
    pub fn candidates(&self) -> impl Iterator<Item = Width> {
        let Bounds { min, max } = self.bounds;
        let between = self.acceptance.prior().widths();
        let between = between.filter(move |width| min < *width && *width < max);
        let last = (min < max).then_some(max);
        core::iter::once(min).chain(between).chain(last)
    }

    /// What `width` is expected to cost, as [`Objective::cost`]; `None` while the link's rate is unknown, or there is
    /// nothing to send.
    pub fn cost(&self, width: Width) -> Option<f64> {
        let arrival = self.arrival(width)?;
        let rate = self.acceptance.rate(width, self.now);
        Some(self.objective.cost(arrival, rate, &self.costs))
    }

    fn arrival(&self, width: Width) -> Option<Arrival> {
        let bf16 = self.link.time_for(self.kv)?.as_secs_f64();
        let seconds_per_bit = (bf16 > 0.0).then_some(bf16 / BF16_BITS)?;
        let anchor = width.bits() + self.overhead;
        let full = self.fidelity.bits_per_element(self.overhead);
        Some(Arrival {
            anchor: anchor * seconds_per_bit,
            full: full.max(anchor) * seconds_per_bit,
        })
    }
}

/// The width within the bounds that serves the objective best.
///
/// Of equals the narrowest wins: it is the one that still helps if the link turns out slower. While the link's rate is
/// unknown, or there is nothing to send, the answer is four bits, moved into the bounds.
pub fn choose_width(inputs: &Inputs<'_>) -> Choice {
    let mut best: Option<(Width, f64)> = None;
    for width in inputs.candidates() {
        if let Some(cost) = inputs.cost(width)
            && best.is_none_or(|(_, least)| cost < least)
        {
            best = Some((width, cost));
        }
    }
    let four = Width::from_bits(4).unwrap_or(Width::FULL);
    let width = best.map_or_else(|| inputs.bounds.clamp(four), |(width, _)| width);
    Choice {
        width,
        expected: inputs
            .arrival(width)
            .map(|arrival| expected(inputs, width, arrival)),
    }
}

fn first_tokens(arrival: Arrival, rate: f64, costs: &Costs) -> f64 {
    let tokens = f64::from(PROVISIONAL_TOKENS);
    let taken_back = tokens - expected_accepted(rate, tokens);
    arrival.anchor + taken_back * costs.token.as_secs_f64()
}

/// The mean time of the 32nd verified token: the verification gives the accepted tokens and one more, decode steps
/// give the rest.
fn verified(arrival: Arrival, rate: f64, costs: &Costs) -> f64 {
    let token = costs.token.as_secs_f64();
    let Arrival { anchor, full } = arrival;
    let depth = worth_drafting((full - anchor) / token, rate, costs);
    let steps_only = full + VERIFIED_TOKENS * token;
    if depth > 0.0 {
        let accepted = expected_accepted(rate, depth.min(VERIFIED_TOKENS - 1.0));
        steps_only + costs.extra(depth) - accepted * token
    } else {
        steps_only
    }
}

fn expected(inputs: &Inputs<'_>, width: Width, arrival: Arrival) -> Expected {
    let Arrival { anchor, full } = arrival;
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
        verified: duration(verified(arrival, rate, &inputs.costs)),
    }
}

/// Longest where the seconds are too many to hold, zero where they are negative.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
