//! Drains, carried out: views of pods in, marks and messages out.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use lynx_crds::LynxDeployment;
use serde_json::json;

use super::children::Children;
use super::{Context, ReconcileError};
use crate::build::names::{self, MANAGER, Role};
use crate::clock;
use crate::scaling::drain::{self, AgentView, DELETION_COST, DRAIN_UNTIL, Mark, Plan, PodView};
use crate::streams::{Key, Registry};

/// What is to be done about a role's number of pods.
pub(super) fn plan(
    object: &LynxDeployment,
    context: &Context,
    key: &Key,
    children: &Children,
    role: Role,
) -> Plan {
    let pool = match role {
        Role::Prefill => &object.spec.prefill.pool,
        Role::Decode => &object.spec.decode.pool,
    };
    let desired = u32::try_from(pool.replicas).unwrap_or(0);
    let current = children.deployment(role).and_then(|deployment| {
        let replicas = deployment.spec.as_ref()?.replicas?;
        u32::try_from(replicas).ok()
    });
    let pods: Vec<_> = context.hub.with(key, |registry, now| {
        let of_role = children
            .pods
            .iter()
            .filter(|pod| pod.labels().get(names::ROLE).map(String::as_str) == Some(role.name()));
        of_role.map(|pod| view(pod, registry, key, now)).collect()
    });
    let patience = object.spec.transfer.deadlines.drain.duration().as_secs();
    let patience = i64::try_from(patience.max(1)).unwrap_or(i64::MAX / 2);
    let now = context.clock.wall().as_second();
    drain::plan(desired, current, &pods, patience, now)
}

fn view(pod: &Pod, registry: &Registry, key: &Key, now: lynx_units::Timestamp) -> PodView {
    let name = pod.name_any();
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten();
    let mut agents = registry.agents(key);
    let agent = agents.find(|(of, agent)| *of == name && !agent.is_silent(now));
    let number = |annotation: &str| pod.annotations().get(annotation).map(String::as_str);
    PodView {
        ready: ready
            .into_iter()
            .any(|one| one.type_ == "Ready" && one.status == "True"),
        agent: agent.map(|(_, agent)| AgentView {
            draining: agent.report.draining,
            in_flight: agent.report.in_flight,
        }),
        drain_until: number(DRAIN_UNTIL).and_then(|text| text.parse().ok()),
        cost: number(DELETION_COST).and_then(|text| text.parse().ok()),
        name,
    }
}

/// Writes the marks: they come before the Deployment's number, which makes its controller choose by them.
pub(super) async fn mark(context: &Context, key: &Key, plan: &Plan) -> Result<(), ReconcileError> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    for (name, mark) in &plan.marks {
        let (until, cost) = match mark {
            Some(Mark { until, cost }) => (json!(until.to_string()), json!(cost.to_string())),
            None => (json!(null), json!(null)),
        };
        let patch = json!({"metadata": {"annotations": {DRAIN_UNTIL: until, DELETION_COST: cost}}});
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        match pods.patch(name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => tracing::info!(pod = name, draining = mark.is_some(), "a pod was marked"),
            // It is gone already.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Err(ReconcileError::api(format!("annotate pod {name}"))(error));
            }
        }
    }
    Ok(())
}

/// Tells the agents of both roles who drains.
pub(super) fn tell(context: &Context, key: &Key, children: &Children, plans: &[Plan]) {
    let staying: BTreeSet<_> = children.pods.iter().map(ResourceExt::name_any).collect();
    let wall = context.clock.wall();
    let drains: BTreeMap<_, _> = plans
        .iter()
        .flat_map(|plan| &plan.draining)
        .map(|(pod, until)| (pod.clone(), clock::until(*until, wall)))
        .collect();
    context.hub.with(key, |registry, _| {
        registry.set_drains(key, drains, &staying)
    });
}
