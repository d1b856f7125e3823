//! Autoscaling: one write for both pools, others that scale, and the examples of those.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::{Role, from_operator};
use serde_json::{Value, json};

use crate::adapter::Adapter;
use crate::agents::{Agent, hello};
use crate::chart::{definition, put_strictly};
use crate::harness::{Operator, World, condition, embedded, eventually};
use crate::scale::{busy, drained, goes, ready_pods, ready_pods_of};

/// Bounds that hold at once, whatever the load is.
pub(crate) fn autoscaled(fewest: i32, most: i32) -> Value {
    let mut spec = embedded();
    let bounds = json!({"minReplicas": fewest, "maxReplicas": most});
    spec["decode"] = json!({"autoscaling": {
        "minReplicas": fewest, "maxReplicas": most, "prefill": bounds,
        "target": {"runningRequests": 4}, "ratio": {"min": "1:4", "max": "4:1"},
    }});
    spec
}

async fn replicas(world: &World) -> [i32; 2] {
    let spec = world
        .api::<LynxDeployment>()
        .get("smol")
        .await
        .unwrap()
        .spec;
    [spec.prefill.pool.replicas, spec.decode.pool.replicas]
}

async fn scaled(world: &World, to: [i32; 2]) {
    eventually("both pools' replicas", async || {
        (replicas(world).await == to).then_some(())
    })
    .await;
}

/// An agent for each of two pods of a role: the first has less to lose, and joins when the other has reported.
async fn cast(world: &World, operator: &Operator, role: Role, names: &[String]) -> Vec<Agent> {
    let mut agents = Vec::new();
    for (name, in_flight) in names.iter().zip([1, 5]).rev() {
        let agent = Agent::joined(operator, hello(world, name, role)).await;
        agent.report(busy(in_flight));
        agents.insert(0, agent);
    }
    agents
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn both_pools_are_scaled_in_one_write_and_each_drains_its_own_victim() {
    let world = World::new("both").await;
    let operator = world.operator("a");
    world.apply("smol", autoscaled(2, 2)).await;
    scaled(&world, [2, 2]).await;
    let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
    assert_eq!(object.metadata.generation, Some(2), "one write");
    let fields = object.managed_fields();
    let ours = fields
        .iter()
        .find(|one| one.manager.as_deref() == Some("lynx-autoscaler"));
    let owned = serde_json::to_string(&ours.unwrap().fields_v1).unwrap();
    assert!(
        owned.contains("f:prefill") && owned.contains("f:decode"),
        "{owned}"
    );

    let mut casts = Vec::new();
    for (role, name) in [(Role::Prefill, "prefill"), (Role::Decode, "decode")] {
        let names = ready_pods(&world, name, 2).await;
        let agents = cast(&world, &operator, role, &names).await;
        casts.push((names, agents));
    }
    eventually("all agents", async || {
        (operator.figure("lynx_operator_agents").await == 4).then_some(())
    })
    .await;
    world.apply("smol", autoscaled(1, 1)).await;
    scaled(&world, [1, 1]).await;
    for (names, agents) in &mut casts {
        let drain = agents[0].hears(|kind| match kind {
            from_operator::Kind::Drain(drain) => Some(drain),
            _ => None,
        });
        assert!(!drain.await.cancel);
        agents[0].report(drained());
        goes(&world, [&names[0], &names[1]], &agents[1]).await;
    }
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn another_autoscaler_keeps_the_operator_from_scaling_and_is_told() {
    let world = World::new("rival").await;
    let target =
        json!({"apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment", "name": "smol"});
    let rival = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "other"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3},
    });
    world.put(rival, true).await;
    let operator = world.operator("a");
    world.apply("smol", autoscaled(2, 2)).await;
    let api = world.api::<LynxDeployment>();
    let told = eventually("the condition", async || {
        let object = api.get("smol").await.unwrap();
        let (status, reason) = condition(&object, "ScalingLimited");
        (reason == "AnotherAutoscaler").then_some(status)
    })
    .await;
    assert_eq!(told, "True");
    eventually("the event", async || {
        let events = world.api::<Event>().list(&ListParams::default()).await;
        let mut events = events.unwrap().into_iter();
        events.find(|event| event.reason.as_deref() == Some("AnotherAutoscaler"))
    })
    .await;
    assert_eq!(replicas(&world).await, [1, 1]);
    let others = world.api::<HorizontalPodAutoscaler>();
    others
        .delete("other", &DeleteParams::default())
        .await
        .unwrap();
    scaled(&world, [2, 2]).await;
    operator.stop().await;
    world.end().await;
}

/// An example's objects: the LynxDeployment, and what scales it.
fn example(name: &str) -> (Value, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let text = std::fs::read_to_string(path.join(name)).unwrap();
    let (lynx, scaler) = text.split_once("\n---\n").unwrap();
    (
        serde_norway::from_str(lynx).unwrap(),
        serde_norway::from_str(scaler).unwrap(),
    )
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn the_example_of_an_hpa_scales_the_decode_pool_by_a_figure_of_its_pods() {
    let world = World::new("hpa").await;
    let adapter = Adapter::serve(&world, "lynx_running_requests", 8).await;
    let operator = world.operator("a");
    let (lynx, scaler) = example("hpa.yaml");
    world.put(lynx, true).await;
    world.put(scaler, true).await;
    // Its controller looks every fifteen seconds, and raises to the least before it asks for any figure.
    ready_pods_of(&world, "smollm2-hpa", "decode", 2).await;
    eventually("a figure that the autoscaler goes by", async || {
        let scalers = world.api::<HorizontalPodAutoscaler>();
        let status = scalers.get("smollm2-hpa").await.unwrap().status?;
        let mut conditions = status.conditions.into_iter().flatten();
        conditions.find(|one| one.type_ == "ScalingActive" && one.status == "True")
    })
    .await;
    // Two pods have eight requests each, and four are for one pod.
    let params =
        ListParams::default().labels("lynx.dev/deployment=smollm2-hpa,lynx.dev/role=decode");
    eventually("four decode pods", async || {
        let list = world.api::<Deployment>().list(&params).await.unwrap();
        let deployment = list.items.into_iter().next()?;
        (deployment.spec?.replicas == Some(4)).then_some(())
    })
    .await;
    adapter.end().await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn the_example_of_keda_fits_its_definition_and_is_a_rival_like_any_other() {
    let world = World::new("keda").await;
    let kind = definition("keda", "keda.sh_scaledobjects.yaml");
    world.put(kind, false).await;
    let (mut lynx, scaler) = example("keda.yaml");
    put_strictly(&world, &scaler).await;
    let operator = world.operator("a");
    lynx["spec"]["decode"] = autoscaled(2, 2)["decode"].clone();
    world.put(lynx, true).await;
    eventually("the condition", async || {
        let object = world.api::<LynxDeployment>().get("smollm2-keda").await;
        let (_, reason) = condition(&object.unwrap(), "ScalingLimited");
        (reason == "AnotherAutoscaler").then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}
