//! The scale subresource, drains, and autoscaling.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::{Report, Role, from_operator};
use serde_json::json;

use crate::agents::{Agent, hello, ready};
use crate::harness::{World, embedded, eventually};
use crate::objects::settled;

async fn replicas(world: &World) -> i32 {
    let decode = world.deployment("decode").await.unwrap();
    decode.spec.unwrap().replicas.unwrap()
}

async fn scale(world: &World, replicas: i32) {
    let patch = json!({"spec": {"replicas": replicas}});
    let api = world.api::<LynxDeployment>();
    api.patch_scale("smol", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// The pods of a role, once there are so many, called ready as a kubelet would.
pub(crate) async fn ready_pods(world: &World, role: &str, count: usize) -> Vec<String> {
    ready_pods_of(world, "smol", role, count).await
}

/// The same of any deployment.
pub(crate) async fn ready_pods_of(
    world: &World,
    deployment: &str,
    role: &str,
    count: usize,
) -> Vec<String> {
    let pods = world.api::<Pod>();
    let labels = format!("lynx.dev/deployment={deployment},lynx.dev/role={role}");
    let params = ListParams::default().labels(&labels);
    let names = eventually("pods", async || {
        let list = pods.list(&params).await.unwrap();
        let names: Vec<_> = list.iter().map(ResourceExt::name_any).collect();
        (names.len() == count).then_some(names)
    })
    .await;
    for name in &names {
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
    names
}

/// Of an agent that takes work, and has some.
pub(crate) fn busy(in_flight: u32) -> Report {
    Report {
        in_flight,
        ..ready()
    }
}

/// Of one that was told to drain, and has nothing left.
pub(crate) fn drained() -> Report {
    Report {
        draining: true,
        ..Report::default()
    }
}

/// Waits for the end of the first of two pods, while the other one's agent has work. The other one stays.
pub(crate) async fn goes(world: &World, [first, other]: [&str; 2], keen: &Agent) {
    let pods = world.api::<Pod>();
    eventually("the drained pod's end", async || {
        keen.report(busy(5));
        let gone = pods.get_opt(first).await.unwrap();
        gone.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
            .then_some(())
    })
    .await;
    let kept = pods.get(other).await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_pod_drains_before_the_deployment_shrinks_and_it_is_that_pod_that_goes() {
    let world = World::new("drain").await;
    let operator = world.operator("a");
    let mut spec = embedded();
    spec["decode"] = json!({"replicas": 1});
    world.apply("smol", spec).await;
    settled(&world, "smol").await;
    scale(&world, 2).await;
    let names = ready_pods(&world, "decode", 2).await;
    let subresource = world
        .api::<LynxDeployment>()
        .get_scale("smol")
        .await
        .unwrap();
    let selector = subresource.status.unwrap().selector;
    assert_eq!(
        selector.as_deref(),
        Some("lynx.dev/deployment=smol,lynx.dev/role=decode")
    );

    // The report of the one with more to lose is taken in before the other one joins: without it that one would go.
    let keen = Agent::joined(&operator, hello(&world, &names[1], Role::Decode)).await;
    keen.report(busy(5));
    let mut lazy = Agent::joined(&operator, hello(&world, &names[0], Role::Decode)).await;
    lazy.report(busy(1));
    eventually("both agents", async || {
        (operator.figure("lynx_operator_agents").await == 2).then_some(())
    })
    .await;

    scale(&world, 1).await;
    let drain = lazy
        .hears(|kind| match kind {
            from_operator::Kind::Drain(drain) => Some(drain),
            _ => None,
        })
        .await;
    assert!(!drain.cancel && drain.deadline_ms > 0);
    assert_eq!(replicas(&world).await, 2, "one request is in flight");

    lazy.report(drained());
    goes(&world, [&names[0], &names[1]], &keen).await;
    assert_eq!(replicas(&world).await, 1);
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn more_replicas_cancel_a_drain() {
    let world = World::new("cancel").await;
    let operator = world.operator("a");
    let mut spec = embedded();
    spec["decode"] = json!({"replicas": 1});
    world.apply("smol", spec).await;
    settled(&world, "smol").await;
    let names = ready_pods(&world, "decode", 1).await;
    let mut agent = Agent::joined(&operator, hello(&world, &names[0], Role::Decode)).await;
    agent.report(busy(3));
    scale(&world, 0).await;
    let drains = |kind| match kind {
        from_operator::Kind::Drain(drain) => Some(drain.cancel),
        _ => None,
    };
    assert!(!agent.hears(drains).await);
    let pods = world.api::<Pod>();
    let marked = async || {
        let pod = pods.get(&names[0]).await.unwrap();
        pod.annotations().contains_key("lynx.dev/drain-until")
    };
    assert!(marked().await);
    scale(&world, 1).await;
    assert!(agent.hears(drains).await);
    eventually("the mark's end", async || (!marked().await).then_some(())).await;
    assert_eq!(replicas(&world).await, 1);
    operator.stop().await;
    world.end().await;
}
