//! From one revision of the pods to the next, a pair at a time.
//!
//! Pure: what exists comes in, how many pods each revision should have comes out. Nothing is remembered between two looks, so a
//! new leader, or an operator that starts again in the middle, goes on from what the API server says. A revision is the
//! hash of a role's pod template; a generation is the hash of what decides whether two pods fit together. Only pods of
//! one generation pair, so a change of generation replaces both roles in step, and any other change replaces the role
//! that it is about.
//!
//! What counts is not whether a pod is ready but whether it *works*: a decode pod that answers and has a link to a prefill
//! pod of its generation, a prefill pod that takes work and has such a decode pod. A pod of an old revision is drained only
//! where as many working pods are left as the spec asks for; a new one is made only where no more pods than that and
//! the surge come to be. How a pod is drained is [`drain`](crate::scaling::drain)'s.
//!
//! Why not the rolling updates of two Deployments: each of them looks at one role and at readiness, so that for a while all
//! decode pods may be of one generation and all prefill pods of the other.

mod draft;

use std::collections::{BTreeMap, BTreeSet};

use crate::build::names::Role;
use crate::scaling::drain::PodView;
use draft::Draft;

/// What a pod is worth, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It takes no requests: it starts, or is broken.
    Idle,
    /// A decode pod that answers without a prefill pod: it computes prompts itself.
    Alone,
    /// The kubelet calls it ready, and its agent, or the agent that it may be linked to, has not reported: this operator may just
    /// have started.
    Unknown,
    /// It takes what it is there for.
    Works,
}

/// Pods of one role and one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Which.
    pub revision: String,
    /// With whom they pair.
    pub generation: String,
    /// How many the workload is told to have.
    pub replicas: u32,
    /// Those that are there and are not being deleted.
    pub pods: Vec<PodView>,
    /// Those that are being deleted and have time left.
    pub ending: u32,
}

/// What the spec wants of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Of which revision.
    pub revision: String,
    /// With whom that pairs.
    pub generation: String,
    /// How many.
    pub replicas: u32,
}

/// A role as it is and as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleView {
    /// What the spec wants.
    pub target: Target,
    /// What there is.
    pub pools: Vec<Pool>,
}

/// How much may change at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many pods of a role there may be beyond what the spec wants.
    pub surge: u32,
    /// Whether as many pods as the spec wants must work at all times.
    pub keep: bool,
}

/// Both roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// Those that compute prompts.
    pub prefill: RoleView,
    /// Those that answer.
    pub decode: RoleView,
    /// How much may change at once.
    pub limits: Limits,
}

/// How many pods each revision of a role should have, drains to come included.
pub type Wanted = BTreeMap<String, u32>;

/// What should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By revision.
    pub prefill: Wanted,
    /// By revision.
    pub decode: Wanted,
    /// How far it is; `None` where all pods are of the newest revision.
    pub step: Option<Step>,
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Pods of older revisions.
    pub old_prefill: u32,
    /// Pods of older revisions.
    pub old_decode: u32,
    /// Pods of the newest revision that work.
    pub new_prefill: u32,
    /// Pods of the newest revision that work.
    pub new_decode: u32,
    /// What it waits for.
    pub waits: Wait,
}

/// What a rollout waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// New pods must come up.
    Pods,
    /// New pods are up, and have no links to each other.
    Links,
    /// Pods are ready whose agents have not joined.
    Agents,
    /// Old pods finish what they have.
    Drains,
}

/// What works, in numbers that a rollout must keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Working {
    /// Prefill pods with a decode pod.
    pub prefill: u32,
    /// Decode pods with a prefill pod.
    pub decode: u32,
    /// Decode pods that answer, with or without one.
    pub answering: u32,
}

impl Pool {
    /// Pods that are told to go and that the workload's number still counts.
    fn leaving(&self) -> u32 {
        let leaving = count(self.pods.iter().filter(|pod| pod.drain_until.is_some()));
        // Of pods beyond the number, the workload's controller is just about to delete so many.
        let going = count(self.pods.iter()).saturating_sub(self.replicas);
        leaving.saturating_sub(going)
    }

    fn exists(&self) -> u32 {
        self.replicas.max(count(self.pods.iter())) + self.ending
    }

    /// Whether nothing is left of it.
    pub fn is_gone(&self) -> bool {
        self.replicas == 0 && self.pods.is_empty()
    }
}

impl World {
    fn role(&self, role: Role) -> &RoleView {
        match role {
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
        }
    }

    /// What works now, of the pods that are to stay.
    pub fn working(&self) -> Working {
        Draft::of(self).working()
    }
}

/// The plan for this world.
pub fn plan(world: &World) -> Plan {
    let mut draft = Draft::of(world);
    while draft.remove_one() {}
    Plan {
        prefill: draft.wanted(Role::Prefill),
        decode: draft.wanted(Role::Decode),
        step: step(world),
    }
}

fn step(world: &World) -> Option<Step> {
    let old = |role: Role| {
        let view = world.role(role);
        let old = view
            .pools
            .iter()
            .filter(|pool| pool.revision != view.target.revision);
        old.map(Pool::exists).sum::<u32>()
    };
    let (old_prefill, old_decode) = (old(Role::Prefill), old(Role::Decode));
    if old_prefill + old_decode == 0 {
        return None;
    }
    let works = |role: Role| {
        let view = world.role(role);
        let new = view
            .pools
            .iter()
            .filter(|pool| pool.revision == view.target.revision);
        count(
            new.flat_map(|pool| &pool.pods)
                .filter(|pod| pod.standing == Standing::Works),
        )
    };
    Some(Step {
        old_prefill,
        old_decode,
        new_prefill: works(Role::Prefill),
        new_decode: works(Role::Decode),
        waits: waits(world),
    })
}

fn waits(world: &World) -> Wait {
    let mut new = Vec::new();
    let mut unknown = false;
    let mut short = false;
    for role in Role::ALL {
        let view = world.role(role);
        for pool in &view.pools {
            unknown |= pool
                .pods
                .iter()
                .any(|pod| pod.standing == Standing::Unknown);
            if pool.revision == view.target.revision {
                new.extend(&pool.pods);
                short |= count(pool.pods.iter()) < pool.replicas;
            }
        }
    }
    let stands = |standing| new.iter().any(|pod| pod.standing == standing);
    if unknown {
        Wait::Agents
    } else if short || stands(Standing::Idle) {
        Wait::Pods
    } else if stands(Standing::Alone) {
        Wait::Links
    } else {
        Wait::Drains
    }
}

/// The revisions of a role that are still of use: the newest, and those with pods.
pub fn kept(view: &RoleView) -> BTreeSet<String> {
    let old = view.pools.iter().filter(|pool| !pool.is_gone());
    old.map(|pool| pool.revision.clone())
        .chain([view.target.revision.clone()])
        .collect()
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
