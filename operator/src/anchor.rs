//! The anchor policy: which mean width each class of links gets.
//!
//! `lynx_policy::choose_width` says what would be best for the link as it is; [`damping`] decides whether to follow. Pure:
//! reports come in as a [`Window`] and links, time is an argument. The agents keep the last policy they got, so nothing
//! here is urgent.

pub mod damping;

use std::collections::BTreeMap;
use std::time::Duration;

use lynx_policy::{
    Acceptance, Bounds, Choice, Costs, Fidelity, Inputs, Objective, Prior, choose_width,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

use crate::streams::registry::LinkSeen;
use crate::streams::{Drafts, Window};
use damping::{Damped, Limits};

/// Mean bits an element that an anchor takes besides its codes, as agents reckon too.
const OVERHEAD: f64 = 0.6;
/// What was accepted counts half after this.
const ACCEPTANCE_HALF_LIFE: Duration = Duration::from_secs(300);
/// The weight of a tick's rate against what was known.
const RATE_WEIGHT: f64 = 0.3;
/// A token's time before an engine reported one.
const TOKEN_TIME: Duration = Duration::from_millis(25);
/// What part of a token's time a drafted token adds to a verification, as long as nobody measured it.
const VERIFIED_SHARE: u32 = 8;
/// More drafts in one tick teach no more.
const MOST_DRAFTS: u64 = 1000;
/// The links of no class.
const UNCLASSED: &str = "";

/// What a deployment's spec says about its anchor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// How the width is found.
    pub mode: Mode,
    /// What to hasten.
    pub objective: Objective,
    /// What "full" means.
    pub fidelity: Fidelity,
    /// Whether K's planes follow a profile of the model.
    pub profile: bool,
}

/// How the width is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the spec.
    Fixed(Width),
    /// From the links.
    Adaptive(Bounds),
}

/// Why the width is what it is; the names are the reasons of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The spec says so.
    Fixed,
    /// No link was measured yet.
    NoLinkMeasured,
    /// The measured links are served best by it.
    BestForLink,
    /// The width is on its way to what is best, in steps.
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
    /// The rate that was reckoned with; zero where none was measured.
    pub rate: BitRate,
}

/// One deployment's anchor.
#[derive(Clone, Debug)]
pub struct Controller {
    wanted: Wanted,
    limits: Limits,
    acceptance: Acceptance,
    token: Duration,
    kv: Bytes,
    classes: BTreeMap<&'static str, Class>,
    drafted: u64,
    accepted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    rate: BitRate,
    damped: Damped,
    decision: Decision,
}

impl Controller {
    /// Nothing reported yet.
    pub fn new(wanted: Wanted, limits: Limits) -> Self {
        let prior = if wanted.profile {
            Prior::PROFILE
        } else {
            Prior::UNIFORM
        };
        let mut controller = Self {
            wanted,
            limits,
            acceptance: Acceptance::new(prior, ACCEPTANCE_HALF_LIFE),
            token: TOKEN_TIME,
            kv: Bytes::from_mib(64),
            classes: BTreeMap::new(),
            drafted: 0,
            accepted: 0,
        };
        let first = controller.first();
        controller.classes.insert(UNCLASSED, first);
        controller
    }

    /// Goes on from a width that was decided before, as if it were on its way.
    pub fn resume(&mut self, width: Width) {
        if let Mode::Adaptive(bounds) = self.wanted.mode {
            for class in self.classes.values_mut() {
                class.damped.jump(bounds.clamp(width));
                class.decision.width = class.damped.width();
                class.decision.reason = Reason::Following;
            }
        }
    }

    /// The spec's present word. Another one starts from it at once: a person's change is no flapping link.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        if wanted.profile != self.wanted.profile {
            *self = Self::new(wanted, self.limits);
        } else if wanted != self.wanted {
            self.wanted = wanted;
            let first = self.first();
            for class in self.classes.values_mut() {
                let width = wanted.clamp(class.damped.width());
                class.damped.jump(width);
                class.decision = Decision {
                    width,
                    reason: first.decision.reason,
                    rate: class.rate,
                };
            }
        }
    }

    /// What was reported since the last call, and the links as they are. True where a width changed.
    pub fn tick(&mut self, window: &Window, links: &[LinkSeen], now: Timestamp) -> bool {
        self.learn(window, now);
        for link in links.iter().filter(|link| link.up) {
            let first = self.first();
            self.classes.entry(link.class).or_insert(first);
        }
        let names: Vec<_> = self.classes.keys().copied().collect();
        let mut changed = false;
        for name in names {
            let median = median_rate(links, name);
            changed |= self.decide(name, median, now);
        }
        changed
    }

    /// The decision for each class; links of no class have one always.
    pub fn decisions(&self) -> impl Iterator<Item = (&'static str, Decision)> {
        self.classes
            .iter()
            .map(|(name, class)| (*name, class.decision))
    }

    /// The decision that stands for the deployment: that of the slowest measured class.
    pub fn decision(&self) -> Decision {
        let measured = self
            .classes
            .values()
            .filter(|class| class.rate.bits_per_second() > 0);
        let slowest = measured.min_by_key(|class| class.rate);
        slowest
            .or_else(|| self.classes.get(UNCLASSED))
            .map_or_else(|| self.first().decision, |class| class.decision)
    }

    /// The share of drafted tokens that were right, since the operator knows this deployment.
    pub fn accepted_share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = || self.accepted as f64 / self.drafted as f64;
        (self.drafted > 0).then(share)
    }

    fn first(&self) -> Class {
        let (width, reason) = match self.wanted.mode {
            Mode::Fixed(width) => (width, Reason::Fixed),
            Mode::Adaptive(_) => {
                let choice = self.choose(BitRate::from_bits_per_second(0), Timestamp::ORIGIN);
                (choice.width, Reason::NoLinkMeasured)
            }
        };
        let rate = BitRate::from_bits_per_second(0);
        Class {
            rate,
            damped: Damped::new(width),
            decision: Decision {
                width,
                reason,
                rate,
            },
        }
    }

    fn learn(&mut self, window: &Window, now: Timestamp) {
        if let Some(token) = window.token_time() {
            self.token = token;
        }
        if let Some(kv) = window.transfer_bytes() {
            self.kv = kv;
        }
        for (eighths, drafts) in &window.drafts {
            self.drafted = self.drafted.saturating_add(drafts.drafted);
            self.accepted = self.accepted.saturating_add(drafts.accepted);
            let width = u8::try_from(*eighths).ok().and_then(Width::from_eighths);
            if let Some(width) = width {
                self.record(width, drafts, now);
            }
        }
    }

    /// Sums are learnt from as so many drafts of the mean length.
    fn record(&mut self, width: Width, sums: &Drafts, now: Timestamp) {
        let drafts = sums.drafts.clamp(1, MOST_DRAFTS);
        let mean = |sum: u64| u32::try_from(sum / drafts).unwrap_or(u32::MAX);
        let (drafted, accepted) = (mean(sums.drafted), mean(sums.accepted));
        for _ in 0..drafts {
            self.acceptance.record(width, drafted, accepted, now);
        }
    }

    fn decide(&mut self, name: &'static str, median: Option<BitRate>, now: Timestamp) -> bool {
        let Some(mut class) = self.classes.get(name).copied() else {
            return false;
        };
        if let Some(rate) = median {
            class.rate = smoothed(class.rate, rate);
        }
        let choice = self.choose(class.rate, now);
        let changed = match self.wanted.mode {
            Mode::Fixed(_) => false,
            Mode::Adaptive(_) if class.rate.bits_per_second() == 0 => false,
            Mode::Adaptive(_) if class.decision.reason == Reason::NoLinkMeasured => {
                class.damped.jump(choice.width);
                choice.width != class.decision.width
            }
            Mode::Adaptive(_) => class.damped.follow(choice.width, &self.limits, now),
        };
        class.decision = Decision {
            width: class.damped.width(),
            reason: self.reason(&class, &choice),
            rate: class.rate,
        };
        self.classes.insert(name, class);
        changed
    }

    fn reason(&self, class: &Class, choice: &Choice) -> Reason {
        match self.wanted.mode {
            Mode::Fixed(_) => Reason::Fixed,
            Mode::Adaptive(_) if class.rate.bits_per_second() == 0 => Reason::NoLinkMeasured,
            Mode::Adaptive(_) if choice.width == class.damped.width() => Reason::BestForLink,
            Mode::Adaptive(_) => Reason::Following,
        }
    }

    fn choose(&self, link: BitRate, now: Timestamp) -> Choice {
        let bounds = match self.wanted.mode {
            Mode::Adaptive(bounds) => Some(bounds),
            Mode::Fixed(width) => Bounds::new(width, width),
        };
        let inputs = bounds.map(|bounds| Inputs {
            objective: self.wanted.objective,
            bounds,
            link,
            kv: self.kv,
            costs: Costs {
                token: self.token,
                verification: self.token,
                verified_token: self.token / VERIFIED_SHARE,
            },
            fidelity: self.wanted.fidelity,
            overhead: OVERHEAD,
            acceptance: &self.acceptance,
            now,
        });
        inputs.as_ref().map_or(
            Choice {
                width: Width::FULL,
                expected: None,
            },
            choose_width,
        )
    }
}

impl Wanted {
    fn clamp(&self, width: Width) -> Width {
        match self.mode {
            Mode::Fixed(fixed) => fixed,
            Mode::Adaptive(bounds) => bounds.clamp(width),
        }
    }
}

/// The middle one of the measured rates of a class: one bad link of many doesn't decide for the others.
fn median_rate(links: &[LinkSeen], class: &str) -> Option<BitRate> {
    let mut rates: Vec<_> = links
        .iter()
        .filter(|link| link.up && link.class == class && link.rate.bits_per_second() > 0)
        .map(|link| link.rate)
        .collect();
    rates.sort_unstable();
    rates.get(rates.len() / 2).copied()
}

/// Smoothed on the scale of ratios: half the rate weighs as much as twice the rate.
fn smoothed(known: BitRate, seen: BitRate) -> BitRate {
    if known.bits_per_second() == 0 {
        return seen;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate within 1e-15 of itself")]
    let (known, seen) = (
        known.bits_per_second() as f64,
        seen.bits_per_second() as f64,
    );
    let log = known.ln() * (1.0 - RATE_WEIGHT) + seen.ln() * RATE_WEIGHT;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the exponential is positive, and lies between two rates"
    )]
    BitRate::from_bits_per_second(log.exp() as u64)
}

#[cfg(test)]
mod tests;
