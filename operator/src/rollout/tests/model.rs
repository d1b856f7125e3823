//! A model of the API server, the workloads' controllers, kubelets and agents, driven by random events.

use std::collections::BTreeMap;

use super::super::*;
use crate::scaling::drain::{self, AgentView};

const PATIENCE: i64 = 3;

/// A pod of the model.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    ready: bool,
    /// Whether its agent has joined this life of the operator.
    joined: bool,
    in_flight: u32,
    drain_until: Option<i64>,
    cost: Option<i32>,
    /// When it is gone, where it is being deleted.
    gone_at: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    pub(super) generation: String,
    pub(super) replicas: u32,
    pub(super) pods: Vec<Pod>,
}

/// A spec: which generation, which revision of each role, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bolero::TypeGenerator)]
pub(super) struct Spec {
    pub(super) generation: u8,
    pub(super) prefill_revision: bool,
    pub(super) decode_revision: bool,
    pub(super) prefill: u8,
    pub(super) decode: u8,
}

impl Spec {
    /// Generation 2 never comes up.
    pub(super) fn works(self) -> bool {
        self.generation % 3 != 2
    }

    pub(super) fn target(self, role: Role) -> Target {
        let (revision, replicas) = match role {
            Role::Prefill => (self.prefill_revision, self.prefill),
            Role::Decode => (self.decode_revision, self.decode),
        };
        let generation = format!("g{}", self.generation % 3);
        Target {
            revision: format!("{generation}-{}", u8::from(revision)),
            generation,
            replicas: u32::from(replicas % 4) + 1,
        }
    }
}

#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
pub(super) enum Event {
    Change(Spec),
    Scale { prefill: u8, decode: u8 },
    PodDies { decode: bool, which: u8 },
    OperatorStarts,
    AgentsJoin,
    AgentJoins { which: u8 },
    Time,
    Requests { which: u8, some: u8 },
    Look,
    Kubelet,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) spec: Spec,
    pub(super) workloads: [BTreeMap<String, Workload>; 2],
    pub(super) surge: u32,
    pub(super) now: i64,
    pub(super) names: u32,
}

impl Cluster {
    fn view(&self, role: Role, workloads: &BTreeMap<String, Workload>) -> RoleView {
        let pools = workloads.iter().map(|(revision, workload)| Pool {
            revision: revision.clone(),
            generation: workload.generation.clone(),
            replicas: workload.replicas,
            pods: workload
                .pods
                .iter()
                .filter(|pod| pod.gone_at.is_none())
                .map(|pod| self.pod(role, workload, pod))
                .collect(),
            ending: count(workload.pods.iter().filter(|pod| pod.gone_at.is_some())),
        });
        RoleView {
            target: self.spec.target(role),
            pools: pools.collect(),
        }
    }

    fn pod(&self, role: Role, workload: &Workload, pod: &Pod) -> PodView {
        let [prefill, _] = &self.workloads;
        let partners = prefill
            .values()
            .filter(|other| other.generation == workload.generation)
            .flat_map(|other| &other.pods)
            .filter(|pod| pod.ready && pod.gone_at.is_none() && pod.drain_until.is_none());
        // The best that is known of those at the other ends of its links.
        let linked = partners.map(|pod| pod.joined).max();
        let standing = match (pod.ready, pod.joined, linked) {
            (false, ..) => Standing::Idle,
            (true, false, _) => Standing::Unknown,
            (true, true, _) if role == Role::Prefill => Standing::Works,
            (true, true, Some(true)) => Standing::Works,
            (true, true, Some(false)) => Standing::Unknown,
            (true, true, None) => Standing::Alone,
        };
        PodView {
            name: pod.name.clone(),
            ready: pod.ready,
            standing,
            agent: pod.joined.then_some(AgentView {
                draining: pod.drain_until.is_some(),
                in_flight: pod.in_flight,
            }),
            drain_until: pod.drain_until,
            cost: pod.cost,
        }
    }

    pub(super) fn world(&self) -> World {
        let [prefill, decode] = &self.workloads;
        World {
            prefill: self.view(Role::Prefill, prefill),
            decode: self.view(Role::Decode, decode),
            limits: Limits {
                surge: self.surge,
                keep: true,
            },
        }
    }

    /// What a reconcile does, from what the API server says alone.
    pub(super) fn look(&mut self) {
        let world = self.world();
        let plan = plan(&world);
        let before = world.working();
        for (role, wanted) in [(Role::Prefill, plan.prefill), (Role::Decode, plan.decode)] {
            let view = world.role(role).clone();
            for (revision, wanted) in wanted {
                let pool = view.pools.iter().find(|pool| pool.revision == revision);
                let pods = pool.map_or(&[][..], |pool| &pool.pods);
                let current = pool.map(|pool| pool.replicas);
                let drains = drain::plan(wanted, current, pods, PATIENCE, self.now);
                let generation = view.target.generation.clone();
                let workload = self.of(role).entry(revision).or_insert_with(|| Workload {
                    generation,
                    ..Workload::default()
                });
                workload.replicas = drains.replicas;
                for pod in &mut workload.pods {
                    if let Some(mark) = drains.marks.get(&pod.name) {
                        pod.drain_until = mark.map(|mark| mark.until);
                        pod.cost = mark.map(|mark| mark.cost);
                    }
                }
            }
            let kept = kept(&view);
            self.of(role).retain(|revision, workload| {
                kept.contains(revision) || workload.replicas > 0 || !workload.pods.is_empty()
            });
        }
        let after = self.world();
        let now = after.working();
        let (prefill, decode) = (world.prefill.target.replicas, world.decode.target.replicas);
        assert!(
            now.prefill >= before.prefill.min(prefill),
            "{world:#?}\n{after:#?}"
        );
        assert!(
            now.decode >= before.decode.min(decode),
            "{world:#?}\n{after:#?}"
        );
        assert!(
            now.answering >= before.answering.min(decode),
            "{world:#?}\n{after:#?}"
        );
        for (before, after) in [
            (&world.prefill, &after.prefill),
            (&world.decode, &after.decode),
        ] {
            let exists = |view: &RoleView| view.pools.iter().map(Pool::exists).sum::<u32>();
            let old = before
                .pools
                .iter()
                .any(|pool| pool.revision != before.target.revision && pool.exists() > 0);
            let allowed = before.target.replicas + self.surge;
            assert!(
                !old || exists(after) <= allowed.max(exists(before)),
                "{world:#?}\n{after:#?}"
            );
        }
    }

    fn of(&mut self, role: Role) -> &mut BTreeMap<String, Workload> {
        let [prefill, decode] = &mut self.workloads;
        match role {
            Role::Prefill => prefill,
            Role::Decode => decode,
        }
    }

    /// The workloads' controllers and the kubelet: pods are made, come up, and go.
    fn kubelet(&mut self) {
        let before = self.world().working();
        self.control_workloads();
        let after = self.world().working();
        let kept = after.prefill >= before.prefill
            && after.decode >= before.decode
            && after.answering >= before.answering;
        assert!(
            kept,
            "pods went that were not drained: {before:?} {after:?} {self:#?}"
        );
    }

    fn control_workloads(&mut self) {
        let now = self.now;
        for workload in self.workloads.iter_mut().flat_map(BTreeMap::values_mut) {
            workload
                .pods
                .retain(|pod| pod.gone_at.is_none_or(|at| at > now));
            let live = |workload: &Workload| {
                workload
                    .pods
                    .iter()
                    .filter(|pod| pod.gone_at.is_none())
                    .count()
            };
            let wanted = usize::try_from(workload.replicas).unwrap();
            while live(workload) < wanted {
                self.names += 1;
                workload.pods.push(Pod {
                    name: format!("pod-{:04}", self.names),
                    ready: false,
                    joined: false,
                    in_flight: 0,
                    drain_until: None,
                    cost: None,
                    gone_at: None,
                });
            }
            while live(workload) > wanted {
                let pods = workload.pods.iter_mut().filter(|pod| pod.gone_at.is_none());
                let first = pods.min_by_key(|pod| {
                    (
                        pod.ready && pod.drain_until.is_none(),
                        pod.cost.unwrap_or(0),
                    )
                });
                first.unwrap().gone_at = Some(now + 1);
            }
        }
    }

    /// Pods of what works come up, one after the other.
    fn start_one(&mut self) {
        let all = self.workloads.iter_mut().flat_map(BTreeMap::values_mut);
        let mut starting = all
            .filter(|workload| workload.generation != "g2")
            .flat_map(|workload| &mut workload.pods)
            .filter(|pod| !pod.ready && pod.gone_at.is_none() && pod.drain_until.is_none());
        if let Some(pod) = starting.next() {
            pod.ready = true;
            pod.joined = true;
        }
    }

    fn pods(&mut self) -> Vec<&mut Pod> {
        self.workloads
            .iter_mut()
            .flat_map(BTreeMap::values_mut)
            .flat_map(|workload| &mut workload.pods)
            .collect()
    }

    pub(super) fn happens(&mut self, event: Event) {
        match event {
            Event::Change(spec) => self.spec = spec,
            Event::Scale { prefill, decode } => {
                self.spec = Spec {
                    prefill,
                    decode,
                    ..self.spec
                };
            }
            Event::PodDies { decode, which } => {
                let role = if decode { Role::Decode } else { Role::Prefill };
                let all = self.of(role).values_mut();
                let mut pods: Vec<_> = all.flat_map(|workload| &mut workload.pods).collect();
                let count = pods.len().max(1);
                if let Some(pod) = pods.get_mut(usize::from(which) % count) {
                    pod.ready = false;
                    pod.joined = false;
                }
            }
            Event::OperatorStarts => self.pods().into_iter().for_each(|pod| pod.joined = false),
            Event::AgentsJoin => {
                self.pods()
                    .into_iter()
                    .for_each(|pod| pod.joined = pod.ready);
            }
            Event::AgentJoins { which } => {
                let mut pods = self.pods();
                let count = pods.len().max(1);
                if let Some(pod) = pods.get_mut(usize::from(which) % count) {
                    pod.joined = pod.ready;
                }
            }
            Event::Time => {
                self.now += 1;
                for pod in self.pods() {
                    pod.in_flight = pod.in_flight.saturating_sub(1);
                    // A drained pod is not ready any more.
                    pod.ready &= pod.drain_until.is_none();
                }
            }
            Event::Requests { which, some } => {
                let mut pods = self.pods();
                let count = pods.len().max(1);
                if let Some(pod) = pods.get_mut(usize::from(which) % count) {
                    pod.in_flight = u32::from(some % 4);
                }
            }
            Event::Look => self.look(),
            Event::Kubelet => {
                self.kubelet();
                self.start_one();
            }
        }
    }

    /// All is well from here on, for as long as it takes at most.
    pub(super) fn settle(&mut self) -> u32 {
        for round in 0..400 {
            if self.is_done() {
                return round;
            }
            for event in [Event::AgentsJoin, Event::Look, Event::Kubelet, Event::Time] {
                self.happens(event);
            }
        }
        panic!(
            "it doesn't end: {:#?}\n{:#?}",
            self.world(),
            plan(&self.world())
        );
    }

    fn is_done(&self) -> bool {
        Role::ALL
            .into_iter()
            .zip(&self.workloads)
            .all(|(role, all)| {
                let target = self.spec.target(role);
                all.len() == 1
                    && all.get(&target.revision).is_some_and(|workload| {
                        workload.replicas == target.replicas
                            && workload.pods.len() == usize::try_from(target.replicas).unwrap()
                            && workload
                                .pods
                                .iter()
                                .all(|pod| pod.ready && pod.drain_until.is_none())
                    })
            })
    }

    pub(super) fn running(spec: Spec, surge: u32) -> Self {
        let mut cluster = Self {
            spec,
            workloads: Default::default(),
            surge,
            now: 0,
            names: 0,
        };
        cluster.settle();
        cluster
    }
}
