//! The conditions: each a small function of what was seen.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use lynx_crds::spec::AnchorMode;
use lynx_crds::{ConditionType, not_acted_on};

use super::{Seen, Workload};

/// Ours, in the order in which people read them. Others' are left to others.
pub(super) const OWN: [ConditionType; 7] = [
    ConditionType::Available,
    ConditionType::Progressing,
    ConditionType::Degraded,
    ConditionType::LinkReady,
    ConditionType::AnchorAdapted,
    ConditionType::ScalingLimited,
    ConditionType::Unsupported,
];

/// A condition's status, reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Verdict {
    /// It is so.
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new("True", reason, message)
    }

    /// It isn't.
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new("False", reason, message)
    }

    /// It isn't known.
    pub fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new("Unknown", reason, message)
    }

    fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }
}

/// One of each type; their times are filled in later.
pub(super) fn all(seen: &Seen<'_>) -> Vec<Condition> {
    let generation = seen.object.metadata.generation;
    OWN.into_iter()
        .map(|kind| {
            let verdict = match kind {
                ConditionType::Available => available(seen),
                ConditionType::Progressing => progressing(seen),
                ConditionType::Degraded => degraded(seen),
                ConditionType::LinkReady => seen.summary.link_verdict.clone(),
                ConditionType::AnchorAdapted => anchor(seen),
                ConditionType::ScalingLimited => seen.summary.scaling.verdict.clone(),
                ConditionType::Unsupported => unsupported(seen),
            };
            Condition {
                type_: kind.name().into(),
                status: verdict.status.into(),
                reason: verdict.reason.into(),
                message: verdict.message,
                observed_generation: generation,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }
        })
        .collect()
}

fn available(seen: &Seen<'_>) -> Verdict {
    let (Some(prefill), Some(decode)) = (seen.prefill, seen.decode) else {
        let problem = seen.problems.first();
        return Verdict::no(
            problem.map_or("NotBuilt", |problem| problem.reason),
            "no pods were made: see Degraded",
        );
    };
    if decode.desired == 0 {
        return Verdict::no("ScaledToZero", "spec.decode.replicas is 0");
    }
    if decode.ready == 0 {
        return Verdict::no("NoDecodePod", "no decode pod is ready");
    }
    if prefill.desired > 0 && prefill.ready == 0 {
        return Verdict::no("NoPrefillPod", "no prefill pod is ready");
    }
    Verdict::yes("Serving", "requests are answered")
}

fn progressing(seen: &Seen<'_>) -> Verdict {
    let progress = seen.progress.filter(|progress| progress.status.is_some());
    if let Some(progress) = progress {
        return if progress.stalled {
            Verdict::no("RolloutStalled", progress.sentence())
        } else {
            Verdict::yes("RollingOut", progress.sentence())
        };
    }
    for (name, workload) in [("prefill", seen.prefill), ("decode", seen.decode)] {
        let Some(workload) = workload else {
            return Verdict::no("NotBuilt", "no pods were made: see Degraded");
        };
        if let Some((reason, message)) = movement(name, &workload) {
            let troubles = seen.progress.map(|progress| progress.troubles.as_slice());
            let troubles = troubles.unwrap_or_default().iter().map(String::as_str);
            let all: Vec<_> = std::iter::once(message.as_str()).chain(troubles).collect();
            return Verdict::yes(reason, all.join("; "));
        }
    }
    Verdict::no("Complete", "all pods are as the spec wants them")
}

fn movement(name: &str, workload: &Workload) -> Option<(&'static str, String)> {
    let Workload {
        desired,
        replicas,
        updated,
        available,
        draining,
        observed,
        ..
    } = *workload;
    if draining > 0 {
        return Some((
            "Draining",
            format!("{draining} {name} pods finish what they have before they go"),
        ));
    }
    if !observed || updated < desired || replicas > updated {
        return Some((
            "RollingOut",
            format!("{updated} of {desired} {name} pods are of the newest generation"),
        ));
    }
    (available < desired).then(|| {
        (
            "PodsNotReady",
            format!("{available} of {desired} {name} pods are ready"),
        )
    })
}

fn degraded(seen: &Seen<'_>) -> Verdict {
    match seen.problems.first() {
        Some(problem) => {
            let messages: Vec<_> = seen
                .problems
                .iter()
                .map(|one| one.message.as_str())
                .collect();
            Verdict::yes(problem.reason, messages.join("; "))
        }
        None => Verdict::no("AsExpected", "nothing is known to be wrong"),
    }
}

fn anchor(seen: &Seen<'_>) -> Verdict {
    if seen.object.spec.transfer.anchor.mode == AnchorMode::Fixed {
        return Verdict::no("Fixed", "the width is the spec's");
    }
    match &seen.summary.anchor {
        Some(anchor) if anchor.reason != "NoLinkMeasured" => Verdict::yes(
            "FollowsLinks",
            "the width is chosen by the links' rates: see status.anchor",
        ),
        _ => Verdict::unknown("NoLinkMeasured", "no link was measured yet"),
    }
}

fn unsupported(seen: &Seen<'_>) -> Verdict {
    let ignored = not_acted_on(&seen.object.spec);
    if ignored.is_empty() {
        return Verdict::no("None", "every field of the spec is acted on");
    }
    let sentences: Vec<_> = ignored.iter().map(ToString::to_string).collect();
    Verdict::yes("FieldsIgnored", sentences.join("; "))
}
