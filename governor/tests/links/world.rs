//! An hour of one deployment: requests, what they cost, what agents report of it, and what the controller makes of that.

use std::collections::BTreeMap;
use std::time::Duration;

use lynx_governor::width::{Controller, Link, Mode, Seen, Wanted};
use lynx_policy::{
    Acceptance, Arrival, Bounds, Costs, DraftInputs, Drafts, Fidelity, Objective, Prior,
    draft_depth,
};
use lynx_units::{BitRate, Bytes, Timestamp, Width};

use super::random::Random;
use super::trace::{SECONDS, Trace};

/// What the decode engine really takes; the controller assumes other figures for a verification.
const COSTS: Costs = Costs {
    token: Duration::from_millis(25),
    verification: Duration::from_millis(30),
    verified_token: Duration::from_micros(1500),
};
const OVERHEAD: f64 = 0.6;
/// Requests in a second, over all classes.
const REQUESTS: f64 = 1.0;
/// Bits of KV as BF16 in the mean.
const KV_BITS: f64 = 64.0 * 8.0 * 1024.0 * 1024.0;
/// Single requests have a third to three times that, by a log-normal distribution of this width and mean one.
const SPREAD: f64 = 0.5;
const NAMES: [&str; 2] = ["same", "cross"];
/// Links of each class.
const LINKS: usize = 4;
/// Reports are two seconds apart; an agent that was not heard for five of them is silent.
const TICK: usize = 2;
const SILENT: usize = 10;
/// After so many seconds without a bit a link is down.
const DOWN: usize = 4;

/// Near enough to a normal distribution: twelve uniform numbers.
pub(crate) fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// How much of a draft is really accepted.
#[derive(Clone, Copy)]
pub(crate) struct Truth {
    prior: Prior,
    /// So many times as many rejections as the prior says.
    factor: f64,
    /// Below so many bits, ten times as many again.
    cliff: u8,
}

impl Truth {
    pub(crate) const fn scaled(prior: Prior, factor: f64) -> Self {
        Self {
            prior,
            factor,
            cliff: 0,
        }
    }

    pub(crate) const fn cliff(bits: u8) -> Self {
        Self {
            prior: Prior::UNIFORM,
            factor: 1.0,
            cliff: bits,
        }
    }

    /// As with a profile that the controller doesn't know of. Below three bits, where its table has none, it is as much
    /// better as there.
    pub(crate) const fn profile() -> Self {
        Self::scaled(Prior::PROFILE, 1.0)
    }

    fn rate(self, width: Width) -> f64 {
        let three = Width::from_bits(3).unwrap();
        if self.prior == Prior::PROFILE && width < three {
            let lost = |prior: Prior, width| 1.0 - prior.rate(width);
            let better = lost(Prior::PROFILE, three) / lost(Prior::UNIFORM, three);
            return 1.0 - lost(Prior::UNIFORM, width) * better;
        }
        let steep = if width.bits() < f64::from(self.cliff) {
            10.0
        } else {
            1.0
        };
        (1.0 - (1.0 - self.prior.rate(width)) * self.factor * steep).max(0.0)
    }
}

#[derive(Clone)]
pub(crate) struct World {
    traces: Vec<Trace>,
    noise: f64,
    lost: f64,
    truth: Truth,
}

/// What a run came to; shares, or counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) over_clairvoyant: f64,
    pub(crate) over_fixed: f64,
    pub(crate) most_in_a_minute: usize,
    pub(crate) changes_an_hour: usize,
}

impl Outcome {
    pub(crate) fn worse(&self, other: &Self) -> Self {
        Self {
            over_clairvoyant: self.over_clairvoyant.max(other.over_clairvoyant),
            over_fixed: self.over_fixed.max(other.over_fixed),
            most_in_a_minute: self.most_in_a_minute.max(other.most_in_a_minute),
            changes_an_hour: self.changes_an_hour.max(other.changes_an_hour),
        }
    }
}

/// How much is really accepted, by eighths of a bit.
type Rates = [f64; 65];

/// A class of links, as it is and as it is told of.
struct Class {
    name: &'static str,
    rates: Vec<f64>,
    /// Bits that got through until each second.
    through: Vec<f64>,
    estimates: [f64; LINKS],
    reported: [Option<(f64, usize)>; LINKS],
    fixed: BTreeMap<Width, f64>,
    clairvoyant: f64,
    paid: f64,
    width: Option<Width>,
    changes: Vec<usize>,
    drafts: BTreeMap<Width, Drafts>,
    /// What the class's decode agent makes of its own drafts: whether to draft is its decision.
    agent: Acceptance,
}

impl World {
    pub(crate) fn new(traces: impl IntoIterator<Item = Trace>) -> Self {
        Self {
            traces: traces.into_iter().collect(),
            noise: 0.1,
            lost: 0.0,
            truth: Truth::scaled(Prior::UNIFORM, 1.0),
        }
    }

    /// Estimates are off by this factor, in logarithms, in the mean.
    pub(crate) fn noise(self, noise: f64) -> Self {
        Self { noise, ..self }
    }

    /// This share of the reports is lost; from minute 20 to 23 all are.
    pub(crate) fn lost(self, lost: f64) -> Self {
        Self { lost, ..self }
    }

    pub(crate) fn truth(self, truth: Truth) -> Self {
        Self { truth, ..self }
    }

    pub(crate) fn run(&self, objective: Objective, seed: u64) -> Outcome {
        let mut random = Random(seed);
        let truth: Rates = std::array::from_fn(|eighths| {
            let width = u8::try_from(eighths).ok().and_then(Width::from_eighths);
            self.truth.rate(width.unwrap())
        });
        let mut classes: Vec<_> = NAMES
            .iter()
            .zip(&self.traces)
            .map(|(name, trace)| Class::new(name, trace.rates(&mut random)))
            .collect();
        let bounds = Bounds::new(Width::from_bits(2).unwrap(), Width::FULL).unwrap();
        let mut controller = Controller::new(Wanted {
            mode: Mode::Adaptive(bounds),
            objective,
            fidelity: Fidelity::Exact,
            profile: false,
        });
        for second in 0..SECONDS {
            if second.is_multiple_of(TICK) {
                self.tick(&mut controller, &mut classes, second, &mut random);
            }
            let mut arrivals = REQUESTS;
            while random.unit() < arrivals / 4.0 {
                arrivals -= 0.25;
                let index = if classes.len() > 1 && random.unit() < 0.5 {
                    1
                } else {
                    0
                };
                request(
                    &mut classes[index],
                    objective,
                    &truth,
                    (second, &mut random),
                );
            }
        }
        outcome(&classes)
    }

    fn tick(
        &self,
        controller: &mut Controller,
        classes: &mut [Class],
        second: usize,
        random: &mut Random,
    ) {
        let all_lost = self.lost > 0.0 && (1200..1380).contains(&second);
        let (mut links, mut drafts) = (Vec::new(), Vec::new());
        for class in &mut *classes {
            for index in 0..LINKS {
                if !(all_lost || random.unit() < self.lost) {
                    class.report(index, self.noise, second, random);
                }
            }
            links.extend(class.links(second));
            let told = std::mem::take(&mut class.drafts);
            if !(all_lost || random.unit() < self.lost) {
                drafts.extend(told);
            }
        }
        let seen = Seen {
            links: &links,
            drafts: &drafts,
            token_time: Some(COSTS.token),
            kv: Some(Bytes::new(whole(KV_BITS / 8.0))),
        };
        let now = Timestamp::from_origin(Duration::from_secs(second as u64));
        controller.tick(&seen, now);
        let decided: BTreeMap<_, _> = controller.decisions().collect();
        for class in classes {
            let decision = decided.get(class.name).or_else(|| decided.get("")).unwrap();
            // What is found at the first measurement is no change: nothing was known before.
            if class.width.is_some_and(|width| width != decision.width) {
                class.changes.push(second);
            }
            class.width = Some(decision.width);
        }
    }
}

impl Class {
    fn new(name: &'static str, rates: Vec<f64>) -> Self {
        let mut through = vec![0.0];
        for rate in &rates {
            through.push(through.last().unwrap() + rate);
        }
        Self {
            name,
            estimates: [rates[0]; LINKS],
            reported: [None; LINKS],
            rates,
            through,
            fixed: BTreeMap::new(),
            clairvoyant: 0.0,
            paid: 0.0,
            width: None,
            changes: Vec::new(),
            drafts: BTreeMap::new(),
            agent: Acceptance::new(Prior::UNIFORM, Duration::from_secs(300)),
        }
    }

    /// When a request of `second` has its anchor, and all.
    fn arrival(&self, second: usize, bits: f64, width: Width) -> Arrival {
        let anchor = (width.bits() + OVERHEAD) * bits / 16.0;
        let full = Fidelity::Exact.bits_per_element(OVERHEAD) * bits / 16.0;
        Arrival {
            anchor: self.time_for(second, anchor),
            full: self.time_for(second, full.max(anchor)),
        }
    }

    /// How long so many bits take from a second on. The last rate goes on for ever.
    fn time_for(&self, second: usize, bits: f64) -> f64 {
        let target = self.through[second] + bits;
        let end = self.through.partition_point(|through| *through < target);
        let last = end.min(SECONDS) - 1;
        let left = target - self.through[last];
        f64::from(u32::try_from(last - second).unwrap()) + left / self.rates[last]
    }

    fn report(&mut self, index: usize, noise: f64, second: usize, random: &mut Random) {
        let dark = self.rates[..=second]
            .iter()
            .rev()
            .take_while(|rate| **rate == 0.0)
            .count();
        if dark > DOWN {
            self.reported[index] = None;
            return;
        }
        // The best of the last second, as links are estimated; agents don't report all at once. In the dark, the last.
        let at = second.saturating_sub(index % TICK);
        if self.rates[at] > 0.0 {
            self.estimates[index] = self.rates[at] * libm::exp(noise * normal(random));
        }
        self.reported[index] = Some((self.estimates[index], second));
    }

    fn links(&self, second: usize) -> impl Iterator<Item = Link> {
        let heard = self
            .reported
            .iter()
            .flatten()
            .filter(move |(_, heard)| second - heard <= SILENT);
        heard.map(|(rate, _)| Link {
            class: self.name,
            rate: BitRate::from_bits_per_second(whole(*rate)),
        })
    }
}

fn request(
    class: &mut Class,
    objective: Objective,
    truth: &Rates,
    (second, random): (usize, &mut Random),
) {
    let bits = KV_BITS * libm::exp(SPREAD * (normal(random) - SPREAD / 2.0));
    let of = |class: &Class, bits: f64, width: Width| {
        let arrival = class.arrival(second, bits, width);
        let rate = truth[usize::from(width.eighths())];
        (arrival, objective.cost(arrival, rate, &COSTS))
    };
    let cost = |class: &Class, width: Width| of(class, bits, width);
    let (mut best, mut least) = (Width::FULL, f64::MAX);
    for eighths in (16..=64).step_by(2) {
        let width = Width::from_eighths(eighths).unwrap();
        *class.fixed.entry(width).or_default() += cost(class, width).1;
        let (_, mean) = of(class, KV_BITS, width);
        if mean < least {
            (best, least) = (width, mean);
        }
    }
    class.clairvoyant += cost(class, best).1;
    let width = class.width.unwrap();
    let (arrival, paid) = cost(class, width);
    class.paid += paid;
    let rate = truth[usize::from(width.eighths())];
    let now = Timestamp::from_origin(Duration::from_secs(second as u64));
    draft(class, width, (arrival, rate, now), random);
}

/// The request's draft, as its agent will report it.
fn draft(
    class: &mut Class,
    width: Width,
    (arrival, rate, now): (Arrival, f64, Timestamp),
    random: &mut Random,
) {
    let depth = draft_depth(&DraftInputs {
        full_due_in: Duration::from_secs_f64(arrival.full - arrival.anchor),
        rate: class.agent.rate(width, now),
        costs: COSTS,
        limit: 32,
    });
    if depth == 0 {
        return;
    }
    let mut accepted = 0;
    while accepted < depth && random.unit() < rate {
        accepted += 1;
    }
    class.agent.record(width, depth, accepted, now);
    let drafts = class.drafts.entry(width).or_default();
    drafts.drafts += 1;
    drafts.drafted += u64::from(depth);
    drafts.accepted += u64::from(accepted);
}

fn outcome(classes: &[Class]) -> Outcome {
    let sum = |of: &dyn Fn(&Class) -> f64| classes.iter().map(of).sum::<f64>();
    let fixed = |class: &Class| class.fixed.values().copied().fold(f64::MAX, f64::min);
    let paid = sum(&|class| class.paid);
    let in_a_minute = |class: &Class| {
        let after = |start: &usize| {
            let within = class
                .changes
                .iter()
                .filter(|at| (*start..start + 60).contains(at));
            within.count()
        };
        class.changes.iter().map(after).max().unwrap_or(0)
    };
    Outcome {
        over_clairvoyant: paid / sum(&|class| class.clairvoyant) - 1.0,
        over_fixed: paid / sum(&fixed) - 1.0,
        most_in_a_minute: classes.iter().map(in_a_minute).max().unwrap(),
        changes_an_hour: classes
            .iter()
            .map(|class| class.changes.len())
            .max()
            .unwrap(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and far from the limit"
)]
fn whole(number: f64) -> u64 {
    number as u64
}
