//! Fewer replicas without losing a request: drain first, remove after.
//!
//! A Deployment has no notion of a drain, but it removes not-ready pods first and then those of the lowest deletion
//! cost. So victims are chosen here, marked on the pods themselves (a new leader finds the marks), told to drain, and the
//! Deployment's number follows only when they are empty or out of time.

use std::collections::BTreeMap;

use crate::rollout::Standing;

/// On a pod that is to go: until when it may finish, in seconds since 1970.
pub const DRAIN_UNTIL: &str = "lynx.dev/drain-until";
/// What the ReplicaSet controller ranks pods by.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The cost of a pod that drains.
const DRAINING: i32 = -1000;
/// The cost of a pod that is empty or out of time: it goes before one that still drains.
const FINISHED: i32 = -2000;

/// A pod that is not being deleted already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Whether the kubelet calls it ready.
    pub ready: bool,
    /// What it is worth.
    pub standing: Standing,
    /// What its agent said, where one has joined.
    pub agent: Option<AgentView>,
    /// The mark, where it has one.
    pub drain_until: Option<i64>,
    /// The deletion cost it has.
    pub cost: Option<i32>,
}

/// What matters of an agent's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// Whether it takes no new work.
    pub draining: bool,
    /// Requests and transfers that it still has.
    pub in_flight: u32,
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The Deployment's number.
    pub replicas: u32,
    /// The pods that drain, with the end of their time.
    pub draining: BTreeMap<String, i64>,
    /// Marks to write before the Deployment's number: pod, mark and cost. `None`: the mark is taken off.
    pub marks: BTreeMap<String, Option<Mark>>,
    /// When to look again, in seconds since 1970, where nothing else happens before.
    pub look_again: Option<i64>,
}

/// A victim's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Until when it may finish.
    pub until: i64,
    /// Its deletion cost.
    pub cost: i32,
}

impl PodView {
    fn finished(&self, until: i64, now: i64) -> bool {
        match self.agent {
            _ if now >= until => true,
            Some(agent) => agent.draining && agent.in_flight == 0,
            // Never was ready and nobody speaks for it: it has nothing. A marked one may only have lost its stream.
            None => !self.ready && self.drain_until.is_none(),
        }
    }

    /// Victims first: who drains already, those that are done before the others, then who is worth least, then who has
    /// least to lose.
    pub(crate) fn rank(&self) -> (bool, bool, Standing, u32, &str) {
        let in_flight = self.agent.map_or(0, |agent| agent.in_flight);
        let finished = self.cost.is_some_and(|cost| cost <= FINISHED);
        (
            self.drain_until.is_none(),
            !finished,
            self.standing,
            in_flight,
            &self.name,
        )
    }
}

/// From `current` replicas of the Deployment to `desired`, where victims get `patience` seconds.
pub fn plan(desired: u32, current: Option<u32>, pods: &[PodView], patience: i64, now: i64) -> Plan {
    let surplus = current.unwrap_or(0).saturating_sub(desired);
    let mut plan = Plan {
        replicas: current.unwrap_or(desired).max(desired),
        ..Plan::default()
    };
    let mut ranked: Vec<_> = pods.iter().collect();
    ranked.sort_by_key(|pod| pod.rank());
    let count = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    // Pods that were never made need no drain.
    let unmade = surplus.min(current.unwrap_or(0).saturating_sub(count));
    let victims = usize::try_from(surplus - unmade).unwrap_or(usize::MAX);
    // Of pods beyond the Deployment's number, its controller is just about to delete the marked ones: who took their
    // marks off now would make it choose others.
    let beyond = usize::try_from(count.saturating_sub(current.unwrap_or(0))).unwrap_or(usize::MAX);
    let marked = ranked.iter().filter(|pod| pod.drain_until.is_some());
    let going = beyond.min(marked.count());
    for pod in ranked.drain(..going) {
        if let Some(until) = pod.drain_until {
            plan.draining.insert(pod.name.clone(), until);
        }
    }
    let mut finished = unmade;
    for (index, pod) in ranked.into_iter().enumerate() {
        if index >= victims {
            if pod.drain_until.is_some() || pod.cost.is_some_and(|cost| cost <= DRAINING) {
                plan.marks.insert(pod.name.clone(), None);
            }
            continue;
        }
        let until = pod.drain_until.unwrap_or(now + patience);
        let done = pod.finished(until, now);
        let cost = if done { FINISHED } else { DRAINING };
        if pod.drain_until != Some(until) || pod.cost != Some(cost) {
            plan.marks
                .insert(pod.name.clone(), Some(Mark { until, cost }));
        }
        plan.draining.insert(pod.name.clone(), until);
        if done {
            finished += 1;
        } else {
            plan.look_again = Some(plan.look_again.map_or(until, |at| at.min(until)));
        }
    }
    plan.replicas -= finished;
    plan
}

#[cfg(test)]
mod tests;
