//! One way to act: the width that would have cost least, as far back as this memory goes.

use alloc::collections::BTreeMap;
use core::time::Duration;

use lynx_units::{Timestamp, Width};

/// What a width must have cost less than the favourite to become it, as a share.
const WORTH: f64 = 0.01;
/// A favourite stays this long. It is also what a follower of this memory can do at most.
pub(super) const PACE: Duration = Duration::from_secs(60);
/// How far back a way's record goes: its half-life.
const RECORD: Duration = Duration::from_secs(900);

/// What each width costs on a link as it is just now, in seconds.
pub(super) type Costs = BTreeMap<Width, f64>;

/// Decayed sums of what each width would have cost, and what it would have cost to follow the least of them.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    half_life: Duration,
    sums: Costs,
    favourite: Width,
    chosen: Option<Timestamp>,
    /// The decayed sum of what this memory's favourites cost.
    record: f64,
}

impl Memory {
    pub(super) fn new(half_life: Duration, favourite: Width) -> Self {
        Self {
            half_life,
            sums: Costs::new(),
            favourite,
            chosen: None,
            record: 0.0,
        }
    }

    /// What it says to do.
    pub(super) fn favourite(&self) -> Width {
        self.favourite
    }

    /// What doing so has cost.
    pub(super) fn record(&self) -> f64 {
        self.record
    }

    /// A width that holds at once, and for as long as any.
    pub(super) fn choose(&mut self, width: Width, now: Timestamp) {
        self.favourite = width;
        self.chosen = Some(now);
    }

    /// The link as it is, `elapsed` after it was last seen.
    pub(super) fn saw(&mut self, costs: &Costs, elapsed: Duration, now: Timestamp) {
        let paid = costs.get(&self.favourite).copied().unwrap_or_default();
        self.record = self.record * kept(elapsed, RECORD) + paid;
        let kept = kept(elapsed, self.half_life);
        // Widths that are no candidates any more are forgotten, and new ones begin as dear as the dearest.
        let dearest = self.sums.values().copied().fold(0.0, f64::max);
        self.sums = costs
            .iter()
            .map(|(width, cost)| {
                let sum = self.sums.get(width).copied().unwrap_or(dearest);
                (*width, sum * kept + cost)
            })
            .collect();
        let may = self
            .chosen
            .is_none_or(|chosen| now.saturating_since(chosen) >= PACE);
        if let Some(best) = cheapest(&self.sums).filter(|_| may)
            && self.is_worth(best)
        {
            self.choose(best, now);
        }
    }

    fn is_worth(&self, best: Width) -> bool {
        match (self.sums.get(&self.favourite), self.sums.get(&best)) {
            (Some(present), Some(best)) => *best < present * (1.0 - WORTH),
            (present, _) => present.is_none(),
        }
    }
}

/// Of equals the narrowest: it is the one that still helps if the link turns out slower.
pub(super) fn cheapest(costs: &Costs) -> Option<Width> {
    let mut best: Option<(Width, f64)> = None;
    for (width, cost) in costs {
        if best.is_none_or(|(_, least)| *cost < least) {
            best = Some((*width, *cost));
        }
    }
    best.map(|(width, _)| width)
}

fn kept(elapsed: Duration, half_life: Duration) -> f64 {
    libm::exp2(-elapsed.as_secs_f64() / half_life.as_secs_f64())
}
