//! What of a change is worth an event.

use lynx_crds::{ConditionType, LynxDeploymentStatus, RolloutStatus, condition};

/// An event in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should look.
    pub warning: bool,
    /// For programs.
    pub reason: String,
    /// For people.
    pub note: String,
}

/// That a rollout begins, goes elsewhere, or is over.
fn rollout(old: &LynxDeploymentStatus, new: &LynxDeploymentStatus) -> Option<Notice> {
    let targets = |rollout: &RolloutStatus| (rollout.prefill.clone(), rollout.decode.clone());
    let (reason, note) = match (&old.rollout, &new.rollout) {
        (Some(_), None) => (
            "RolloutFinished",
            "all pods are of the newest revision".to_owned(),
        ),
        (before, Some(now)) if before.as_ref().map(targets) != Some(targets(now)) => (
            "RolloutStarted",
            format!(
                "pods of the revisions {} (prefill) and {} (decode) take the place of {} and {} others",
                now.prefill, now.decode, now.old_prefill, now.old_decode
            ),
        ),
        _ => return None,
    };
    Some(Notice {
        warning: false,
        reason: reason.into(),
        note,
    })
}

/// That autoscaling wants another number of pods.
fn scaled(old: &LynxDeploymentStatus, new: &LynxDeploymentStatus) -> Option<Notice> {
    let (before, now) = (old.scaling.as_ref()?, new.scaling.as_ref()?);
    ((before.prefill, before.decode) != (now.prefill, now.decode)).then(|| Notice {
        warning: false,
        reason: "Scaled".into(),
        note: format!(
            "there are to be {} prefill and {} decode pods instead of {} and {}: {}",
            now.prefill, now.decode, before.prefill, before.decode, now.reason
        ),
    })
}

/// The events of the step from `old` to `new`.
pub fn notices(old: &LynxDeploymentStatus, new: &LynxDeploymentStatus) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (kind, warn_on) in [
        (ConditionType::Degraded, "True"),
        (ConditionType::LinkReady, "False"),
        (ConditionType::ScalingLimited, "True"),
        (ConditionType::Unsupported, "True"),
    ] {
        if let Some(now) = condition(&new.conditions, kind)
            && now.status == warn_on
            && condition(&old.conditions, kind)
                .is_none_or(|before| before.reason != now.reason || before.status != now.status)
        {
            notices.push(Notice {
                warning: true,
                reason: now.reason.clone(),
                note: now.message.clone(),
            });
        }
    }
    if let Some(now) = condition(&new.conditions, ConditionType::Available)
        && condition(&old.conditions, ConditionType::Available)
            .is_some_and(|before| before.status != now.status)
    {
        notices.push(Notice {
            warning: now.status != "True",
            reason: now.reason.clone(),
            note: now.message.clone(),
        });
    }
    notices.extend(rollout(old, new));
    notices.extend(scaled(old, new));
    if let (Some(before), Some(now)) = (&old.anchor, &new.anchor)
        && before.bits != now.bits
    {
        notices.push(Notice {
            warning: false,
            reason: "AnchorChanged".into(),
            note: format!(
                "new transfers get an anchor of {} bits instead of {}: {}",
                now.bits, before.bits, now.reason
            ),
        });
    }
    notices
}
