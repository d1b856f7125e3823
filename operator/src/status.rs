//! From what was seen to the status, and from a change of status to events.
//!
//! Pure. The status is rebuilt whole each time; the times of conditions come from the old one, so that an unchanged world
//! gives an equal status and nothing is written.

mod conditions;
mod events;
mod progress;
mod scaling;
pub mod summary;

pub use events::{Notice, notices};
pub use progress::{Progress, trouble};
pub use scaling::Scaler;
pub use summary::Summary;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lynx_crds::{LynxDeployment, LynxDeploymentStatus, RoleStatus, set_condition};

use crate::build::generation::generation;
use crate::build::names::{Role, selector_text};

/// One role's pods, as its Deployments tell of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// How many pods there should be.
    pub desired: i32,
    /// How many there are.
    pub replicas: i32,
    /// How many of those are of the newest revision.
    pub updated: i32,
    /// How many are ready.
    pub ready: i32,
    /// How many are ready and have been for long enough.
    pub available: i32,
    /// How many finish what they have before they go.
    pub draining: i32,
    /// Whether the newest Deployment's controller has seen it.
    pub observed: bool,
}

/// Why something doesn't work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What a status is made from.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The deployment, with its old status.
    pub object: &'a LynxDeployment,
    /// The prefill pool; `None` where nothing was built.
    pub prefill: Option<Workload>,
    /// The decode pool.
    pub decode: Option<Workload>,
    /// How far a rollout is; `None` where nothing was built.
    pub progress: Option<&'a Progress>,
    /// What agents reported.
    pub summary: &'a Summary,
    /// What stands in the way, the worst first.
    pub problems: &'a [Problem],
}

/// The status, of which only the times depend on `now`.
pub fn status(seen: &Seen<'_>, now: &Time) -> LynxDeploymentStatus {
    let object = seen.object;
    let old = object.status.clone().unwrap_or_default();
    let mut conditions: Vec<_> = old
        .conditions
        .iter()
        .filter(|condition| {
            conditions::OWN
                .iter()
                .any(|own| own.name() == condition.type_)
        })
        .cloned()
        .collect();
    for next in conditions::all(seen) {
        set_condition(&mut conditions, next, now);
    }
    conditions.sort_by_key(|condition| {
        let place = conditions::OWN
            .iter()
            .position(|own| own.name() == condition.type_);
        place.unwrap_or(usize::MAX)
    });
    let role = |workload: Workload| RoleStatus {
        replicas: workload.replicas,
        ready: workload.ready,
        draining: workload.draining,
    };
    LynxDeploymentStatus {
        observed_generation: object.metadata.generation,
        conditions,
        generation_hash: seen.decode.map(|_| generation(&object.spec)),
        prefill: seen.prefill.map(role).or(old.prefill),
        decode: seen.decode.map(role).or(old.decode),
        rollout: match seen.progress {
            Some(progress) => progress.status.clone(),
            None => old.rollout,
        },
        selector: Some(selector_text(object, Role::Decode)),
        link: seen.summary.link.clone(),
        links: seen.summary.links.clone(),
        anchor: seen.summary.anchor.clone(),
        scaling: seen.summary.scaling.status.clone(),
        acceptance_percent: seen.summary.acceptance_percent,
    }
}

#[cfg(test)]
mod tests;
