//! What autoscaling decided, as a status tells it: other numbers at once, another reason once it has lasted.
//!
//! Which limit bites may change with every report of a load near it, and a status that followed would be written every two
//! seconds.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lynx_crds::{LynxDeployment, ScalingStatus};
use lynx_governor::replicas::Why;
use lynx_units::Timestamp;

use super::conditions::Verdict;
use crate::scaling::autoscaler::{Decision, Reason};

/// A reason is told once it has been the same for so long.
const LASTS: Duration = Duration::from_secs(30);

/// Who decides how many pods there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scaler {
    /// Whoever writes the spec.
    Nobody,
    /// The operator, so.
    Operator(Decision),
    /// Another autoscaler, in whose way the operator would be: what it is and scales.
    Other(String),
}

/// What is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The last decision, where the operator decides.
    pub status: Option<ScalingStatus>,
    /// The condition `ScalingLimited`.
    pub verdict: Verdict,
    seen: Option<(Reason, Timestamp)>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            status: None,
            verdict: Verdict::unknown("NotDecided", "nothing has been decided yet"),
            seen: None,
        }
    }
}

impl Scaling {
    /// What was told before this process began.
    pub(super) fn resume(object: &LynxDeployment) -> Self {
        let status = object.status.as_ref();
        Self {
            status: status.and_then(|status| status.scaling.clone()),
            ..Self::default()
        }
    }

    /// Follows who decides, and what. True where something that is told has changed.
    pub(super) fn follow(&mut self, scaler: &Scaler, now: Timestamp, wall: &Time) -> bool {
        let before = (self.status.clone(), self.verdict.clone());
        let verdict = match scaler {
            Scaler::Operator(decision) => {
                self.tell(*decision, now, wall);
                return before != (self.status.clone(), self.verdict.clone());
            }
            Scaler::Nobody => Verdict::no("NotAutoscaled", "the spec has no decode.autoscaling"),
            Scaler::Other(rival) => Verdict::yes(
                "AnotherAutoscaler",
                format!(
                    "{rival}, so the operator doesn't: remove that, or spec.decode.autoscaling"
                ),
            ),
        };
        (self.status, self.verdict, self.seen) = (None, verdict, None);
        before != (self.status.clone(), self.verdict.clone())
    }

    fn tell(&mut self, decision: Decision, now: Timestamp, wall: &Time) {
        let reason = decision.reason;
        let since = match self.seen {
            Some((seen, since)) if seen == reason => since,
            _ => now,
        };
        self.seen = Some((reason, since));
        let [prefill, decode] = decision
            .replicas
            .map(|pods| i32::try_from(pods).unwrap_or(i32::MAX));
        let told = self.status.as_ref();
        let other = told.is_none_or(|told| (told.prefill, told.decode) != (prefill, decode));
        let lasts = now.saturating_since(since) >= LASTS;
        if !(lasts || other && decision.is_change()) {
            return;
        }
        if other || told.is_none_or(|told| told.reason != reason.as_str()) {
            self.status = Some(ScalingStatus {
                prefill,
                decode,
                reason: reason.as_str().into(),
                since: Some(wall.clone()),
            });
        }
        self.verdict = verdict(reason);
    }
}

fn verdict(reason: Reason) -> Verdict {
    let why = match reason {
        Reason::NoPodReady => {
            return Verdict::unknown(
                reason.as_str(),
                "no decode pod is ready, so nothing is known of the load",
            );
        }
        Reason::Governor(why) => why,
    };
    let message = match why {
        Why::Fits | Why::Load => "the load decides how many pods there are",
        Why::ScaledToZero => "a pool was set to 0 by hand, and is left there",
        Why::NoMetrics => {
            "decode pods are ready, and none of their agents reports to the operator: the pools stay as they are"
        }
        Why::MaxReplicas => "the load asks for more pods than maxReplicas",
        Why::Ratio => {
            "the load asks for more pods of one pool than autoscaling.ratio allows beside the other"
        }
        Why::GpuBudget => {
            "the load asks for more pods than autoscaling.gpuBudget has GPUs for, with those that pods on their way out still hold"
        }
        Why::Unschedulable => {
            "the load asks for more pods than the cluster has places for; they are asked for again later"
        }
    };
    match why {
        Why::Fits | Why::Load | Why::ScaledToZero => Verdict::no(reason.as_str(), message),
        _ => Verdict::yes(reason.as_str(), message),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff;

    use super::*;

    fn decided(decode: u32, before: u32, why: Why) -> Decision {
        Decision {
            replicas: [1, decode],
            before: [1, before],
            reason: Reason::Governor(why),
        }
    }

    fn follow(told: &mut Scaling, decision: Decision, second: u64) -> bool {
        let now = Timestamp::from_origin(Duration::from_secs(second));
        let wall = jiff::Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        told.follow(&Scaler::Operator(decision), now, &Time(wall))
    }

    #[test]
    fn a_limit_is_told_when_it_has_lasted_and_other_numbers_at_once() {
        let mut told = Scaling::default();
        assert!(follow(&mut told, decided(3, 1, Why::Load), 0));
        assert_eq!(told.verdict.reason, "Load");
        let quiet = (1..60).filter(|second| {
            let why = if second % 20 < 10 {
                Why::MaxReplicas
            } else {
                Why::Fits
            };
            follow(&mut told, decided(3, 3, why), *second)
        });
        assert_eq!(quiet.count(), 0, "a load near the limit");
        let changes =
            (60..120).filter(|second| follow(&mut told, decided(3, 3, Why::MaxReplicas), *second));
        assert_eq!(changes.count(), 1);
        assert_eq!(
            (told.verdict.status, told.verdict.reason),
            ("True", "MaxReplicas")
        );
        assert_eq!(told.status.unwrap().reason, "MaxReplicas");
    }

    #[test]
    fn another_autoscaler_is_told_at_once() {
        let mut told = Scaling::default();
        follow(&mut told, decided(3, 1, Why::Load), 0);
        let other = Scaler::Other("HorizontalPodAutoscaler a scales LynxDeployment smol".into());
        let wall = Time(jiff::Timestamp::UNIX_EPOCH);
        assert!(told.follow(&other, Timestamp::ORIGIN, &wall));
        assert_eq!(
            (told.verdict.status, told.verdict.reason, told.status),
            ("True", "AnotherAutoscaler", None)
        );
    }

    #[test]
    fn a_start_is_not_a_limit() {
        let mut told = Scaling::default();
        for second in 0..9 {
            assert!(!follow(&mut told, decided(1, 1, Why::NoMetrics), second));
        }
        assert_eq!(told.verdict.status, "Unknown");
    }
}
