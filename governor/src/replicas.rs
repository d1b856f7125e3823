//! How many pods each pool has: one decision for both.
//!
//! [`Scaler::decide`] goes through three rooms. `wish` says what this moment's load asks of each pool; `fit` finds the pair
//! of numbers that serves both wishes best within bounds, ratio and budget; `window` lets it count only when it has lasted.
//! Then growth waits until the GPUs that it needs are free, so that the budget holds also while one pool drains and the
//! other grows.
//!
//! What is not known is not zero: a pod whose agent is silent carries its target where pods are to go, and nothing where
//! pods are to come; without any data nothing moves.
//!
//! There is no scaling to zero: nothing stands before the decode pods that could hold a request and ask for the first of
//! them. Zero is a person's word, and is left alone.

mod fit;
mod window;
mod wish;

use alloc::vec::Vec;
use core::time::Duration;

use lynx_units::Timestamp;

pub use fit::Ratio;
use window::Window;

/// A pod that became ready this recently is still warming up: what it reports says little.
pub const COLD: Duration = Duration::from_secs(30);
/// After so long without a place, a pod is not waited for: time enough to add a node.
const STUCK: Duration = Duration::from_secs(600);

/// What a deployment asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How many prefill pods; `None` where their number is the spec's alone.
    pub prefill: Option<Bounds>,
    /// How many decode pods.
    pub decode: Bounds,
    /// What to aim at.
    pub targets: Targets,
    /// Prefill pods to decode pods.
    pub ratio: Option<Ratio>,
    /// What both pools may have together.
    pub budget: Option<Budget>,
    /// More pods are added only when this long a window agrees.
    pub up: Duration,
    /// Pods go only when this long a window agrees.
    pub down: Duration,
}

impl Settings {
    fn bounded(&self, [prefill, decode]: [u32; 2]) -> [u32; 2] {
        let within = |bounds: Bounds, pods: u32| pods.min(bounds.max).max(bounds.min);
        let prefill = self
            .prefill
            .map_or(prefill, |bounds| within(bounds, prefill));
        [prefill, within(self.decode, decode)]
    }
}

/// Fewest and most pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest, at least one.
    pub min: u32,
    /// Most, no less than `min`.
    pub max: u32,
}

/// GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In all.
    pub gpus: u32,
    /// Of a prefill pod.
    pub prefill: u32,
    /// Of a decode pod.
    pub decode: u32,
}

/// What to aim at, for each decode pod but for the time; where several are given, the largest wish counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Targets {
    /// Requests answered or held back.
    pub running: Option<f64>,
    /// KV bytes waited for.
    pub pending_kv: Option<f64>,
    /// Verified tokens in a second.
    pub verified: Option<f64>,
    /// From a request's arrival to its anchor: what the prefill pool is sized by.
    pub time_to_anchor: Option<Duration>,
}

/// A pool as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// What the spec says now.
    pub replicas: u32,
    /// Pods that hold their devices, on their way out too.
    pub holding: u32,
    /// Pods that the scheduler found no place for, and since when it has looked for the longest.
    pub unplaced: u32,
    /// Since when.
    pub unplaced_since: Option<Timestamp>,
    /// What ready pods reported. A ready pod that is silent is missing here.
    pub loads: Vec<Load>,
}

/// What a pod reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Since when the pod is ready.
    pub ready_since: Option<Timestamp>,
    /// Requests that it works on.
    pub running: f64,
    /// Requests that wait in it.
    pub waiting: f64,
    /// KV bytes that it waits for.
    pub pending_kv: f64,
    /// Tokens that it verified, in a second.
    pub verified: f64,
    /// Mean time to an anchor since the last look, in seconds; a decode pod's, where it had one.
    pub time_to_anchor: Option<f64>,
}

/// Why the numbers are what they are; also the reasons of a condition and of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The load is carried.
    Fits,
    /// The load asks for more, or for less.
    Load,
    /// No agent has reported.
    NoMetrics,
    /// More would be wished for than the largest number.
    MaxReplicas,
    /// More would be wished for than the ratio of the pools allows.
    Ratio,
    /// More would be wished for than there are GPUs.
    GpuBudget,
    /// The cluster has no place for more.
    Unschedulable,
    /// A person said zero.
    ScaledToZero,
}

impl Why {
    /// As a condition's reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "Fits",
            Self::Load => "Load",
            Self::NoMetrics => "NoMetrics",
            Self::MaxReplicas => "MaxReplicas",
            Self::Ratio => "Ratio",
            Self::GpuBudget => "GpuBudget",
            Self::Unschedulable => "Unschedulable",
            Self::ScaledToZero => "ScaledToZero",
        }
    }

    /// Whether something other than the load decides.
    pub const fn is_limit(self) -> bool {
        !matches!(self, Self::Fits | Self::Load)
    }
}

/// Both numbers, to be written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Prefill pods, decode pods.
    pub replicas: [u32; 2],
    /// Why.
    pub why: Why,
}

/// The loads and wishes of the last windows.
#[derive(Clone, Debug, Default)]
pub struct Scaler {
    windows: [Window; 2],
    carried: [wish::Carried; 2],
    /// Until when pools that met a full cluster don't grow.
    full_until: [Option<Timestamp>; 2],
}

impl Scaler {
    /// How many pods there should be, of prefill and decode.
    pub fn decide(&mut self, settings: &Settings, pools: [&Pool; 2], now: Timestamp) -> Decision {
        let replicas = pools.map(|pool| pool.replicas);
        if replicas[1] == 0 || settings.prefill.is_some() && replicas[0] == 0 {
            let why = Why::ScaledToZero;
            return Decision { replicas, why };
        }
        let wishes = self.wishes(settings, pools, now);
        let places = [self.places(0, pools[0], now), self.places(1, pools[1], now)];
        let (fits, why) = fit::fit(settings, replicas, wishes, places);
        let mut next = replicas;
        for pool in 0..2 {
            next[pool] = self.windows[pool].last(fits[pool], replicas[pool], settings, now);
            // Nothing waits in a place that there isn't.
            let places = places[pool].map_or(u32::MAX, |places| places.max(1));
            next[pool] = next[pool].min(places);
        }
        let is_known = !pools[1].loads.is_empty();
        // Bounds hold at once, whatever is known.
        let next = settings.bounded(if is_known { next } else { replicas });
        let (next, waits) = fit::step(settings, pools, next);
        for pool in 0..2 {
            self.windows[pool].went(replicas[pool], next[pool], now);
        }
        let why = match why {
            _ if !is_known => Why::NoMetrics,
            Why::Fits if waits => Why::GpuBudget,
            Why::Fits if next != replicas => Why::Load,
            why => why,
        };
        Decision {
            replicas: next,
            why,
        }
    }

    fn wishes(&mut self, settings: &Settings, pools: [&Pool; 2], now: Timestamp) -> [u32; 2] {
        let warm = [0, 1].map(|pool| self.carried[pool].saw(pools[pool], now));
        let [prefill, decode] = &self.carried;
        let target = settings.targets.time_to_anchor;
        let of_prefill = match (settings.prefill, target.zip(decode.time_to_anchor(now))) {
            (Some(_), Some((target, time))) => {
                wish::prefill(target, time, pools[0], (warm[0], prefill), now)
            }
            // Without a target of its own the pool follows the other one, by the ratio.
            (Some(bounds), None) if target.is_none() => bounds.min,
            _ => pools[0].replicas,
        };
        let of_decode = wish::decode(&settings.targets, pools[1], (warm[1], decode), now);
        [of_prefill, of_decode]
    }

    /// How many pods the cluster has room for; `None` where it is not known to be full.
    fn places(&mut self, pool: usize, seen: &Pool, now: Timestamp) -> Option<u32> {
        let stuck = seen
            .unplaced_since
            .is_some_and(|since| now.saturating_since(since) >= STUCK);
        let full_until = self.full_until.get_mut(pool)?;
        if stuck {
            *full_until = Some(now + STUCK);
        }
        let full = full_until.is_some_and(|until| now < until);
        let placed = seen.holding.saturating_sub(seen.unplaced).max(1);
        full.then_some(placed)
    }
}

#[cfg(test)]
mod tests;
