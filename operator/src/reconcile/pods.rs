//! Rollouts and drains, carried out: views of pods in, marks, numbers and messages out.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use lynx_crds::LynxDeployment;
use lynx_crds::spec::Strategy;
use serde_json::json;

use super::children::{ChildId, Children};
use super::{Context, ReconcileError};
use crate::build::names::{self, MANAGER, Role};
use crate::build::{self, Inputs, generation};
use crate::clock;
use crate::rollout::{self, Limits, Pool, RoleView, Standing, Target, World};
use crate::scaling::drain::{self, AgentView, DELETION_COST, DRAIN_UNTIL, Mark, PodView};
use crate::streams::{Agent, Key, Registry};

/// What is to be done about a deployment's pods.
#[derive(Debug)]
pub(super) struct Planned {
    /// What there is, and what the spec wants.
    pub(super) world: World,
    /// How far a rollout is.
    pub(super) step: Option<rollout::Step>,
    /// What is to be done about each revision's pods.
    drains: BTreeMap<(Role, String), drain::Plan>,
}

impl Planned {
    /// The role as it is and as it should be.
    pub(super) fn view(&self, role: Role) -> &RoleView {
        match role {
            Role::Prefill => &self.world.prefill,
            Role::Decode => &self.world.decode,
        }
    }

    /// The number of the newest revision's Deployment.
    pub(super) fn replicas(&self, role: Role) -> u32 {
        let target = &self.view(role).target;
        let plan = self.drains.get(&(role, target.revision.clone()));
        plan.map_or(target.replicas, |plan| plan.replicas)
    }

    /// Pods of a role that finish what they have before they go.
    pub(super) fn draining(&self, role: Role) -> usize {
        let plans = self.drains.iter().filter(|((of, _), _)| *of == role);
        plans.map(|(_, plan)| plan.draining.len()).sum()
    }

    /// When a pod's time is over, in seconds since 1970.
    pub(super) fn look_again(&self) -> Option<i64> {
        self.drains
            .values()
            .filter_map(|plan| plan.look_again)
            .min()
    }

    /// What is kept besides what is built: the objects of revisions that still have pods.
    pub(super) fn kept(&self, object: &LynxDeployment) -> BTreeSet<ChildId> {
        Role::ALL
            .into_iter()
            .flat_map(|role| {
                let kept = rollout::kept(self.view(role));
                kept.into_iter()
                    .map(move |revision| name_of(object, role, &revision))
            })
            .flat_map(|name| {
                ["Deployment", "ConfigMap"].map(|kind| ChildId {
                    kind: kind.into(),
                    name: name.clone(),
                })
            })
            .collect()
    }
}

/// The Deployment of a revision. One without a revision is of an operator that had one Deployment for each role.
fn name_of(object: &LynxDeployment, role: Role, revision: &str) -> String {
    if revision.is_empty() {
        names::of_role(object, role)
    } else {
        names::of_revision(object, role, revision)
    }
}

/// What is to be done about a deployment's pods.
pub(super) fn plan(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    children: &Children,
) -> Planned {
    let world = world(object, context, key, children);
    let plan = rollout::plan(&world);
    let patience = object.spec.transfer.deadlines.drain.duration().as_secs();
    let patience = i64::try_from(patience.max(1)).unwrap_or(i64::MAX / 2);
    let now = context.clock.wall().as_second();
    let mut drains = BTreeMap::new();
    for (role, view, wanted) in [
        (Role::Prefill, &world.prefill, plan.prefill),
        (Role::Decode, &world.decode, plan.decode),
    ] {
        for (revision, wanted) in wanted {
            let pool = view.pools.iter().find(|pool| pool.revision == revision);
            let pods = pool.map_or(&[][..], |pool| &pool.pods);
            let current = pool.map(|pool| pool.replicas);
            let plan = drain::plan(wanted, current, pods, patience, now);
            drains.insert((role, revision), plan);
        }
    }
    Planned {
        world,
        step: plan.step,
        drains,
    }
}

fn world(object: &LynxDeployment, context: &Context, key: &Key, children: &Children) -> World {
    let rollout = &object.spec.rollout;
    let rolling = rollout.strategy == Strategy::Rolling;
    let inputs = Inputs {
        object,
        config: &context.config,
        prefill: 0,
        decode: 0,
        certificates: None,
    };
    context.hub.with(key, |registry, now| {
        let seen = Seen {
            object,
            context,
            registry,
            key,
            now,
        };
        let [prefill, decode] = Role::ALL.map(|role| seen.role(&inputs, children, role));
        World {
            prefill,
            decode,
            limits: Limits {
                surge: if rolling { rollout.max_surge } else { 0 },
                keep: rolling,
            },
        }
    })
}

/// What agents say, for a moment.
struct Seen<'a> {
    object: &'a LynxDeployment,
    context: &'a Context,
    registry: &'a Registry,
    key: &'a Key,
    now: lynx_units::Timestamp,
}

impl Seen<'_> {
    fn role(&self, inputs: &Inputs<'_>, children: &Children, role: Role) -> RoleView {
        let object = inputs.object;
        let pool = match role {
            Role::Prefill => &object.spec.prefill.pool,
            Role::Decode => &object.spec.decode.pool,
        };
        RoleView {
            target: Target {
                revision: build::revision(inputs, role),
                generation: generation::generation(&object.spec),
                replicas: u32::try_from(pool.replicas).unwrap_or(0),
            },
            pools: children
                .of_role(role)
                .map(|deployment| self.pool(deployment, children, role))
                .collect(),
        }
    }

    fn pool(&self, deployment: &Deployment, children: &Children, role: Role) -> Pool {
        let label = |labels: &BTreeMap<String, String>, name: &str| {
            labels.get(name).cloned().unwrap_or_default()
        };
        let spec = deployment.spec.as_ref();
        let template = spec.and_then(|spec| spec.template.metadata.as_ref()?.labels.clone());
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let revision = label(deployment.labels(), names::REVISION);
        let ours = |pod: &&Pod| {
            label(pod.labels(), names::ROLE) == role.name()
                && label(pod.labels(), names::REVISION) == revision
        };
        let wall = self.context.clock.wall();
        let ending = children.ending().filter(ours).filter(|pod| {
            let until = pod.metadata.deletion_timestamp.as_ref();
            until.is_some_and(|until| until.0 > wall)
        });
        Pool {
            generation: label(&template.unwrap_or_default(), names::GENERATION),
            replicas: u32::try_from(replicas).unwrap_or(0),
            pods: children
                .pods()
                .filter(ours)
                .map(|pod| self.pod(pod, role))
                .collect(),
            ending: u32::try_from(ending.count()).unwrap_or(u32::MAX),
            revision,
        }
    }

    fn pod(&self, pod: &Pod, role: Role) -> PodView {
        let name = pod.name_any();
        let ready = is_ready(pod);
        let mut agents = self.registry.agents(self.key);
        let agent = agents
            .find(|(of, agent)| *of == name && agent.has_reported && !agent.is_silent(self.now))
            .map(|(_, agent)| agent);
        let number = |annotation: &str| pod.annotations().get(annotation).map(String::as_str);
        PodView {
            ready,
            standing: self.standing(pod, agent, role),
            agent: agent.map(|agent| AgentView {
                draining: agent.report.draining,
                in_flight: agent.report.in_flight,
            }),
            drain_until: number(DRAIN_UNTIL).and_then(|text| text.parse().ok()),
            cost: number(DELETION_COST).and_then(|text| text.parse().ok()),
            name,
        }
    }

    fn standing(&self, pod: &Pod, agent: Option<&Agent>, role: Role) -> Standing {
        match (is_ready(pod), agent) {
            (false, _) => Standing::Idle,
            // Agents that were not told of an operator never join.
            (true, None) if self.context.config.agents_url().is_empty() => Standing::Works,
            // Nor do those again that came another way, before this operator began: what the kubelet says must do.
            (true, None) if !build::tls::can_come(self.object, pod) => Standing::Works,
            (true, None) => Standing::Unknown,
            (true, Some(agent)) if !agent.is_ready(self.now) => Standing::Idle,
            (true, Some(_)) if role == Role::Prefill => Standing::Works,
            (true, Some(agent)) => match self.registry.is_paired(self.key, agent, self.now) {
                Some(true) => Standing::Works,
                Some(false) => Standing::Alone,
                None => Standing::Unknown,
            },
        }
    }
}

/// Whether the kubelet calls it ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// Says which prefill agents should join a leader that has just begun.
pub(super) fn await_agents(context: &Context, key: &Key, children: &Children) {
    if context.config.agents_url().is_empty() {
        return;
    }
    let prefill = |pod: &&Pod| {
        let role = pod.labels().get(names::ROLE);
        role.is_some_and(|role| role == Role::Prefill.name()) && is_ready(pod)
    };
    let pods = children.pods().filter(prefill);
    let pods = pods.map(ResourceExt::name_any).collect();
    context.hub.with(key, |registry, now| {
        registry.await_agents(key, pods, now);
    });
}

/// Writes the marks: they come before the Deployments' numbers, which make their controller choose by them.
pub(super) async fn mark(
    context: &Context,
    key: &Key,
    planned: &Planned,
) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    for (name, mark) in planned.drains.values().flat_map(|plan| &plan.marks) {
        let (until, cost) = match mark {
            Some(Mark { until, cost }) => (json!(until.to_string()), json!(cost.to_string())),
            None => (json!(null), json!(null)),
        };
        let patch = json!({"metadata": {"annotations": {DRAIN_UNTIL: until, DELETION_COST: cost}}});
        match pods.patch(name, &ours(), &Patch::Merge(&patch)).await {
            Ok(marked) => {
                context.caches.learn_pod(marked);
                tracing::info!(pod = name, draining = mark.is_some(), "a pod was marked");
            }
            // It is gone already.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Err(ReconcileError::api(format!("annotate pod {name}"))(error));
            }
        }
    }
    Ok(())
}

/// Shrinks the Deployments of older revisions, whose specs are not to be had any more.
pub(super) async fn shrink(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    planned: &Planned,
) -> Result<(), ReconcileError> {
    let api: Api<Deployment> = Api::namespaced(context.client.clone(), &key.namespace);
    for ((role, revision), plan) in &planned.drains {
        let view = planned.view(*role);
        let pool = view.pools.iter().find(|pool| pool.revision == *revision);
        let current = pool.map(|pool| pool.replicas);
        if *revision == view.target.revision || current.is_none_or(|now| now == plan.replicas) {
            continue;
        }
        let name = name_of(object, *role, revision);
        let patch = json!({"spec": {"replicas": plan.replicas}});
        match api.patch(&name, &ours(), &Patch::Merge(&patch)).await {
            Ok(shrunk) => {
                context.caches.learn_deployment(shrunk);
                tracing::info!(
                    deployment = name,
                    from = current,
                    to = plan.replicas,
                    "an older revision shrank"
                );
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(ReconcileError::api(format!("shrink {name}"))(error)),
        }
    }
    Ok(())
}

fn ours() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    }
}

/// Tells the agents of both roles who drains.
pub(super) fn tell(context: &Context, key: &Key, children: &Children, planned: &Planned) {
    let staying: BTreeSet<_> = children.pods().map(ResourceExt::name_any).collect();
    let wall = context.clock.wall();
    let drains: BTreeMap<_, _> = planned
        .drains
        .values()
        .flat_map(|plan| &plan.draining)
        .map(|(pod, until)| (pod.clone(), clock::until(*until, wall)))
        .collect();
    context.hub.with(key, |registry, _| {
        registry.set_drains(key, drains, &staying)
    });
}
