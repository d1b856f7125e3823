//! One class of links: three memories, and the width that is published.

use core::time::Duration;

use lynx_policy::Inputs;
use lynx_units::{BitRate, Timestamp, Width};

use super::memory::{Costs, Memory, PACE, cheapest};
use super::{Decision, Mode, Reason};

/// Half-lives of the memories, shortest first. The short one outlasts noise, the long one every flapping that somebody
/// would call so.
const MEMORIES: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(90),
    Duration::from_secs(900),
];
/// How much less another memory's record must have cost for it to be followed instead, as a share.
const BETTER: f64 = 0.01;
/// The weight of a tick's rate against what is told of it.
const RATE_WEIGHT: f64 = 0.3;

#[derive(Clone, Debug)]
pub(super) struct Class {
    width: Width,
    /// When the width last changed, or was first found.
    since: Option<Timestamp>,
    /// The width that would be best for the link as it was last seen.
    best_now: Option<Width>,
    memories: [Memory; 3],
    /// The memory that is followed.
    followed: usize,
    rate: BitRate,
    seen: Option<Timestamp>,
}

impl Class {
    /// Of a link that nobody measured.
    pub(super) fn new(width: Width) -> Self {
        Self {
            width,
            since: None,
            best_now: None,
            memories: MEMORIES.map(|half_life| Memory::new(half_life, width)),
            followed: 0,
            rate: BitRate::ZERO,
            seen: None,
        }
    }

    /// Of links that were measured by somebody else, who chose `width`.
    pub(super) fn resumed(width: Width, now: Timestamp) -> Self {
        let mut class = Self::new(width);
        class.publish(width, now);
        class.best_now = Some(width);
        class
    }

    /// The same link under another spec, which begins with `width`: what was added up for the old one means nothing.
    pub(super) fn moved(&self, width: Width) -> Self {
        Self {
            best_now: self.best_now.map(|_| width),
            rate: self.rate,
            ..Self::new(width)
        }
    }

    pub(super) fn width(&self) -> Width {
        self.width
    }

    /// The link as it is. True where the published width changed.
    pub(super) fn saw(&mut self, inputs: &Inputs<'_>) -> bool {
        let now = inputs.now;
        let costs: Costs = inputs
            .candidates()
            .filter_map(|width| Some((width, inputs.cost(width)?)))
            .collect();
        // The width that is in use may be none of them.
        let own = inputs.cost(self.width).map(|cost| (self.width, cost));
        let costs: Costs = costs.into_iter().chain(own).collect();
        let Some(best) = cheapest(&costs) else {
            return false;
        };
        self.rate = smoothed(self.rate, inputs.link);
        self.best_now = Some(best);
        let elapsed = self
            .seen
            .map_or(Duration::ZERO, |seen| now.saturating_since(seen));
        self.seen = Some(now);
        if self.since.is_none() {
            // The first measurement is believed at once.
            let changed = best != self.width;
            self.publish(best, now);
            return changed;
        }
        for memory in &mut self.memories {
            memory.saw(&costs, elapsed, now);
        }
        self.follow(now)
    }

    pub(super) fn decision(&self, mode: Mode) -> Decision {
        let reason = match (mode, self.best_now) {
            (Mode::Fixed(_), _) => Reason::Fixed,
            (Mode::Adaptive(_), None) => Reason::NoLinkMeasured,
            (Mode::Adaptive(_), Some(best)) if best == self.width => Reason::BestForLink,
            (Mode::Adaptive(_), Some(_)) => Reason::Following,
        };
        Decision {
            width: self.width,
            reason,
            rate: self.rate,
        }
    }

    fn follow(&mut self, now: Timestamp) -> bool {
        let record = |index: usize| self.memories.get(index).map_or(f64::MAX, Memory::record);
        let mut best = self.followed;
        for index in 0..self.memories.len() {
            if record(index) < record(best) {
                best = index;
            }
        }
        if record(best) < record(self.followed) * (1.0 - BETTER) {
            self.followed = best;
        }
        let favourite = self.memories.get(self.followed).map(Memory::favourite);
        let wish = favourite.filter(|wish| *wish != self.width);
        let may = self
            .since
            .is_none_or(|since| now.saturating_since(since) >= PACE);
        match wish {
            Some(wish) if may => {
                self.width = wish;
                self.since = Some(now);
                true
            }
            _ => false,
        }
    }

    /// A width that all memories agree on, for want of others.
    fn publish(&mut self, width: Width, now: Timestamp) {
        self.width = width;
        self.since = Some(now);
        for memory in &mut self.memories {
            memory.choose(width, now);
        }
    }
}

/// Smoothed on the scale of ratios: half the rate weighs as much as twice the rate.
fn smoothed(known: BitRate, seen: BitRate) -> BitRate {
    if known == BitRate::ZERO {
        return seen;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate within 1e-15 of itself")]
    let [known, seen] = [known, seen].map(|rate| libm::log(rate.bits_per_second() as f64));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the exponential is positive, and lies between two rates"
    )]
    BitRate::from_bits_per_second(libm::exp(known * (1.0 - RATE_WEIGHT) + seen * RATE_WEIGHT) as u64)
}
