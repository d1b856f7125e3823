//! The anchor's mean width for each class of links.
//!
//! `lynx_policy` says what a width costs on a link as it is. A [`Controller`] adds up what each width would have cost on
//! the links as they were, over three lengths of memory at once; each memory's favourite is a way to act, and the way
//! whose record is best is followed. On a steady link all agree; after a step the short memory is right first; on a link
//! that flaps the long memory's compromise costs least, and it stays. A change has to be worth something, and there is
//! at most one a minute for each class.
//!
//! Why not hysteresis on the width: how far two widths are apart says nothing about what the difference costs. Why not a
//! smoothed rate: the mean of a fast and a slow link is a link that nobody has, and its best width may suit neither.
//!
//! Agents keep the last policy they got, so nothing here is urgent.

mod class;
mod memory;
mod wanted;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use lynx_policy::{Acceptance, Costs, Drafts, Inputs, Prior};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

use class::Class;
pub use wanted::{Mode, Wanted};

/// Mean bits an element that an anchor takes besides its codes, as agents reckon too.
const OVERHEAD: f64 = 0.6;
/// What was accepted counts half after this.
const ACCEPTANCE_HALF_LIFE: Duration = Duration::from_secs(900);
/// A token's time before an engine reported one.
const TOKEN_TIME: Duration = Duration::from_millis(25);
/// What part of a token's time a drafted token adds to a verification, as long as nobody measured it.
const VERIFIED_SHARE: u32 = 8;
/// More drafts in one tick teach no more.
const MOST_DRAFTS: u32 = 1000;
/// What a tick's KV weighs against what was known.
const KV_WEIGHT: f64 = 0.1;
/// The links of no class.
const UNCLASSED: &str = "";

/// Why the width is what it is; the names are the reasons of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The spec says so.
    Fixed,
    /// No link was measured yet.
    NoLinkMeasured,
    /// The measured links are served best by it.
    BestForLink,
    /// Another width is better, and is not followed yet: the links may change back.
    Following,
}

impl Reason {
    /// As a condition's reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "Fixed",
            Self::NoLinkMeasured => "NoLinkMeasured",
            Self::BestForLink => "BestForLink",
            Self::Following => "Following",
        }
    }
}

/// What is decided for one class of links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The mean width.
    pub width: Width,
    /// Why.
    pub reason: Reason,
    /// What the class carries, smoothed; zero where none was measured.
    pub rate: BitRate,
}

/// What was reported since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// The links that are up, as they are.
    pub links: &'a [Link],
    /// Drafts by the width that they were drafted at.
    pub drafts: &'a [(Width, Drafts)],
    /// The mean of the engines' times for a token.
    pub token_time: Option<Duration>,
    /// The mean size of a transfer's KV as BF16.
    pub kv: Option<Bytes>,
}

/// A link that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which links it is like; empty where nobody says.
    pub class: &'static str,
    /// What it carries at best; zero before it was measured.
    pub rate: BitRate,
}

/// One deployment's anchor.
#[derive(Clone, Debug)]
pub struct Controller {
    wanted: Wanted,
    acceptance: Acceptance,
    token: Duration,
    kv: Option<Bytes>,
    classes: BTreeMap<&'static str, Class>,
    drafted: u64,
    accepted: u64,
}

impl Controller {
    /// Nothing reported yet.
    pub fn new(wanted: Wanted) -> Self {
        let prior = if wanted.profile {
            Prior::PROFILE
        } else {
            Prior::UNIFORM
        };
        let mut controller = Self {
            wanted,
            acceptance: Acceptance::new(prior, ACCEPTANCE_HALF_LIFE),
            token: TOKEN_TIME,
            kv: None,
            classes: BTreeMap::new(),
            drafted: 0,
            accepted: 0,
        };
        controller
            .classes
            .insert(UNCLASSED, Class::new(wanted.first()));
        controller
    }

    /// Goes on from a width that was decided before. Another one is as hard to come by as ever.
    pub fn resume(&mut self, width: Width, now: Timestamp) {
        if let Mode::Adaptive(bounds) = self.wanted.mode {
            let class = Class::resumed(bounds.clamp(width), now);
            self.classes.insert(UNCLASSED, class.clone());
            for known in self.classes.values_mut() {
                *known = class.clone();
            }
        }
    }

    /// The spec's present word. Another one holds at once: a person's change is no flapping link.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        if wanted.profile != self.wanted.profile {
            *self = Self::new(wanted);
        } else if wanted != self.wanted {
            self.wanted = wanted;
            for class in self.classes.values_mut() {
                *class = class.moved(wanted.clamp(class.width()));
            }
        }
    }

    /// What was reported since the last call. True where a width changed.
    pub fn tick(&mut self, seen: &Seen<'_>, now: Timestamp) -> bool {
        self.learn(seen, now);
        for link in seen.links {
            let first = || Class::new(self.wanted.first());
            self.classes.entry(link.class).or_insert_with(first);
        }
        let Mode::Adaptive(bounds) = self.wanted.mode else {
            return false;
        };
        let Self {
            wanted,
            acceptance,
            token,
            kv,
            classes,
            ..
        } = self;
        let mut changed = false;
        for (name, class) in classes {
            let Some(link) = median_rate(seen.links, name) else {
                continue;
            };
            let inputs = Inputs {
                objective: wanted.objective,
                bounds,
                link,
                kv: kv.unwrap_or(Bytes::from_mib(64)),
                costs: Costs {
                    token: *token,
                    verification: *token,
                    verified_token: *token / VERIFIED_SHARE,
                },
                fidelity: wanted.fidelity,
                overhead: OVERHEAD,
                acceptance,
                now,
            };
            changed |= class.saw(&inputs);
        }
        changed
    }

    /// The decision for each class; links of no class have one always.
    pub fn decisions(&self) -> impl Iterator<Item = (&'static str, Decision)> {
        self.classes
            .iter()
            .map(|(name, class)| (*name, class.decision(self.wanted.mode)))
    }

    /// The decision that stands for the deployment: that of the slowest measured class.
    pub fn decision(&self) -> Decision {
        let slowest = self
            .decisions()
            .map(|(_, decision)| decision)
            .filter(|decision| decision.rate > BitRate::ZERO)
            .min_by_key(|decision| decision.rate);
        let unclassed = || self.classes.get(UNCLASSED);
        slowest
            .or_else(|| Some(unclassed()?.decision(self.wanted.mode)))
            .unwrap_or(Decision {
                width: self.wanted.first(),
                reason: Reason::NoLinkMeasured,
                rate: BitRate::ZERO,
            })
    }

    /// The share of drafted tokens that were right, since the operator knows this deployment.
    pub fn accepted_share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = || self.accepted as f64 / self.drafted as f64;
        (self.drafted > 0).then(share)
    }

    fn learn(&mut self, seen: &Seen<'_>, now: Timestamp) {
        if let Some(token) = seen.token_time {
            self.token = token;
        }
        if let Some(kv) = seen.kv {
            self.kv = Some(self.kv.map_or(kv, |known| smoothed_bytes(known, kv)));
        }
        for (width, drafts) in seen.drafts {
            self.drafted = self.drafted.saturating_add(drafts.drafted);
            self.accepted = self.accepted.saturating_add(drafts.accepted);
            self.acceptance
                .record_sums(*width, drafts, MOST_DRAFTS, now);
        }
    }
}

/// The middle one of the measured rates of a class: one bad link of many doesn't decide for the others.
fn median_rate(links: &[Link], class: &str) -> Option<BitRate> {
    let mut rates: Vec<_> = links
        .iter()
        .filter(|link| link.class == class && link.rate > BitRate::ZERO)
        .map(|link| link.rate)
        .collect();
    rates.sort_unstable();
    rates.get(rates.len() / 2).copied()
}

fn smoothed_bytes(known: Bytes, seen: Bytes) -> Bytes {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between two numbers of bytes, and a few of them are no matter"
    )]
    Bytes::new((known.get() as f64 * (1.0 - KV_WEIGHT) + seen.get() as f64 * KV_WEIGHT) as u64)
}

#[cfg(test)]
mod tests;
