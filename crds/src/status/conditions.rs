//! Conditions, by Kubernetes' conventions.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions that a LynxDeployment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Requests are answered.
    Available,
    /// Something is being changed.
    Progressing,
    /// Something doesn't work, though requests may be answered.
    Degraded,
    /// The links were measured, and are what was asked for.
    LinkReady,
    /// The operator chooses the anchor's width.
    AnchorAdapted,
    /// Something other than the load decides how many pods there are.
    ScalingLimited,
    /// The spec sets fields that nothing acts on yet.
    Unsupported,
}

impl ConditionType {
    /// As it is written in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::LinkReady => "LinkReady",
            Self::AnchorAdapted => "AnchorAdapted",
            Self::ScalingLimited => "ScalingLimited",
            Self::Unsupported => "Unsupported",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The condition of a type, where there is one.
pub fn condition(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|one| one.type_ == kind.name())
}

/// Puts `next` in the place of the condition of its type. `now` becomes the time of transition, unless the condition had
/// the same status before; `next`'s own time is not looked at. Returns whether anything but times changed.
pub fn set_condition(conditions: &mut Vec<Condition>, mut next: Condition, now: &Time) -> bool {
    next.last_transition_time = now.clone();
    let Some(old) = conditions.iter_mut().find(|one| one.type_ == next.type_) else {
        conditions.push(next);
        return true;
    };
    if old.status == next.status {
        next.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != next;
    *old = next;
    changed
}
