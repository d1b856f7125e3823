//! How many pods both pools should have: what the spec asks for and what was seen, put to `lynx_governor::replicas`.
//!
//! Pure. The answer is one pair of numbers, to be written at once: a pool that grows before the other shrinks would hold
//! GPUs that the budget doesn't have.

use lynx_crds::LynxDeployment;
use lynx_crds::spec::{self, Autoscaling};
use lynx_governor::replicas::{Bounds, Budget, Load, Pool, Ratio, Scaler, Settings, Targets, Why};
use lynx_units::Timestamp;

use super::pods::Pods;
use super::quantity;

/// One deployment's decisions.
#[derive(Debug, Default)]
pub struct Autoscaler {
    scaler: Scaler,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Prefill and decode pods that there should be.
    pub replicas: [u32; 2],
    /// What the spec says now.
    pub before: [u32; 2],
    /// Why, as a status tells it.
    pub reason: Reason,
}

/// Why the pools have as many pods as they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The governor's.
    Governor(Why),
    /// No decode pod is ready, so nobody can report.
    NoPodReady,
}

impl Decision {
    /// Whether the spec says something else.
    pub fn is_change(&self) -> bool {
        self.replicas != self.before
    }
}

impl Autoscaler {
    /// How many pods there should be, where the spec has the operator decide; `pods` and `loads` are of prefill and decode.
    pub fn decide(
        &mut self,
        object: &LynxDeployment,
        pods: [Pods; 2],
        loads: [Vec<Load>; 2],
        now: Timestamp,
    ) -> Option<Decision> {
        let settings = settings(object)?;
        let [prefill, decode] = specs(object);
        let before = [count(prefill.replicas), count(decode.replicas)];
        let [of_prefill, of_decode] = loads;
        let pools = [(0, of_prefill), (1, of_decode)].map(|(role, loads)| Pool {
            replicas: before[role],
            holding: pods[role].holding,
            unplaced: pods[role].unplaced,
            unplaced_since: pods[role].unplaced_since,
            loads,
        });
        let [prefill, decode] = &pools;
        let decision = self.scaler.decide(&settings, [prefill, decode], now);
        let starting = decision.why == Why::NoMetrics && pods[1].ready == 0;
        Some(Decision {
            replicas: decision.replicas,
            before,
            reason: if starting {
                Reason::NoPodReady
            } else {
                Reason::Governor(decision.why)
            },
        })
    }
}

fn specs(object: &LynxDeployment) -> [&spec::Pool; 2] {
    [&object.spec.prefill.pool, &object.spec.decode.pool]
}

fn count(replicas: i32) -> u32 {
    u32::try_from(replicas).unwrap_or(0)
}

fn settings(object: &LynxDeployment) -> Option<Settings> {
    let autoscaling = object.spec.decode.autoscaling.as_ref()?;
    let bounds = |min, max| Bounds {
        min: count(min),
        max: count(max),
    };
    let prefill = autoscaling.prefill.as_ref();
    Some(Settings {
        prefill: prefill.map(|prefill| bounds(prefill.min_replicas, prefill.max_replicas)),
        decode: bounds(autoscaling.min_replicas, autoscaling.max_replicas),
        targets: targets(autoscaling),
        ratio: autoscaling.ratio.as_ref().and_then(ratio),
        budget: autoscaling.gpu_budget.map(|gpus| {
            let [prefill, decode] = specs(object).map(|pool| gpus_of(object, pool));
            Budget {
                gpus,
                prefill,
                decode,
            }
        }),
        up: autoscaling.scale_up_stabilization.duration(),
        down: autoscaling.scale_down_stabilization.duration(),
    })
}

fn targets(autoscaling: &Autoscaling) -> Targets {
    let target = &autoscaling.target;
    let bytes = target.pending_kv_bytes.as_ref();
    Targets {
        running: target.running_requests.map(f64::from),
        pending_kv: bytes.and_then(|bytes| quantity::number(&bytes.0)),
        verified: target.verified_tokens_per_second.map(f64::from),
        time_to_anchor: target.time_to_anchor.map(lynx_crds::Period::duration),
    }
}

/// A claim's template says how many GPUs it gives, and the operator doesn't read it: the engine uses so many.
fn gpus_of(object: &LynxDeployment, pool: &spec::Pool) -> u32 {
    match &pool.gpus {
        None => 0,
        Some(gpus) if gpus.resource_name.is_some() => gpus.count,
        Some(_) => object.spec.engine.tensor_parallel_size,
    }
}

fn ratio(ratio: &spec::Ratio) -> Option<Ratio> {
    let pair = |text: &str| {
        let (prefill, decode) = text.split_once(':')?;
        Some((prefill.parse().ok()?, decode.parse().ok()?))
    };
    Some(Ratio {
        min: pair(&ratio.min)?,
        max: pair(&ratio.max)?,
    })
}

impl Reason {
    /// As a status has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoPodReady => "NoPodReady",
            Self::Governor(Why::Fits | Why::Load) => "Load",
            Self::Governor(why) => why.as_str(),
        }
    }
}

#[cfg(test)]
mod tests;
