//! Rollouts, with kubelets and agents that the test plays.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::ListParams;
use lynx_crds::LynxDeployment;
use serde_json::{Value, json};

use crate::harness::{Operator, World, condition, embedded, eventually};
use crate::player::{BROKEN, Player};

fn spec(prefill: i32, decode: i32) -> Value {
    let mut spec = embedded();
    spec["prefill"] = json!({"replicas": prefill});
    spec["decode"] = json!({"replicas": decode});
    spec["rollout"] = json!({"progressDeadline": "3s"});
    spec
}

async fn pods(world: &World, role: &str) -> BTreeSet<String> {
    let params =
        ListParams::default().labels(&format!("lynx.dev/deployment=smol,lynx.dev/role={role}"));
    let list = world.api::<Pod>().list(&params).await.unwrap();
    list.iter().map(|pod| pod.name_any()).collect()
}

/// So many pods of each role, all of one revision, and no rollout.
async fn settled(world: &World, prefill: usize, decode: usize) -> LynxDeployment {
    eventually("all pods are of the newest revision", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        let status = object.status.as_ref()?;
        let done = status.observed_generation == object.metadata.generation
            && status.rollout.is_none()
            && condition(&object, "Progressing").1 == "Complete";
        let params = ListParams::default().labels("lynx.dev/deployment=smol");
        let deployments = world.api::<Deployment>().list(&params).await.unwrap();
        let counts = (
            pods(world, "prefill").await.len(),
            pods(world, "decode").await.len(),
        );
        (done && deployments.items.len() == 2 && counts == (prefill, decode)).then_some(object)
    })
    .await
}

/// A deployment that runs, with an operator and whoever plays its pods.
async fn running(test: &str, prefill: u16, decode: u16) -> (World, Operator, Player) {
    let world = World::new(test).await;
    let operator = world.operator("a");
    world
        .apply("smol", spec(prefill.into(), decode.into()))
        .await;
    let player = Player::start(&world, operator.agents);
    settled(&world, prefill.into(), decode.into()).await;
    player.fewest();
    (world, operator, player)
}

async fn await_event(world: &World, reason: &str) {
    eventually(reason, async || {
        let events = world
            .api::<Event>()
            .list(&ListParams::default())
            .await
            .unwrap();
        let mut reasons = events.iter().filter_map(|event| event.reason.as_deref());
        reasons.any(|one| one == reason).then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn another_generation_takes_over_pair_by_pair_though_the_operator_ends_in_the_middle() {
    let (world, first, player) = running("rollout", 1, 3).await;
    let before = pods(&world, "decode").await;

    let mut changed = spec(1, 3);
    changed["engine"]["env"] = json!([{"name": "A", "value": "b"}]);
    world.apply("smol", changed).await;
    eventually("the first new decode pod", async || {
        let now = pods(&world, "decode").await;
        (!now.is_subset(&before)).then_some(())
    })
    .await;
    await_event(&world, "RolloutStarted").await;
    let during = player.fewest();
    first.stop().await;
    let second = world.operator("bb");
    second.leads().await;
    player.dial(second.agents);
    settled(&world, 1, 3).await;
    let after = player.fewest();
    assert!(before.is_disjoint(&pods(&world, "decode").await));
    for fewest in [during, after] {
        assert!(
            fewest.prefill >= 1 && fewest.decode >= 3,
            "{during:?} {after:?}"
        );
        assert!(
            fewest.pods <= 6,
            "one more of each at most: {during:?} {after:?}"
        );
    }
    await_event(&world, "RolloutFinished").await;
    second.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_change_of_the_decode_pool_alone_restarts_that_pool_alone() {
    let (world, operator, player) = running("onerole", 1, 2).await;
    let (prefill, decode) = (pods(&world, "prefill").await, pods(&world, "decode").await);
    let mut changed = spec(1, 2);
    changed["decode"]["template"] = json!({"annotations": {"a": "b"}});
    world.apply("smol", changed).await;
    settled(&world, 1, 2).await;
    let fewest = player.fewest();
    assert_eq!(pods(&world, "prefill").await, prefill);
    assert!(pods(&world, "decode").await.is_disjoint(&decode));
    assert!(fewest.prefill >= 1 && fewest.decode >= 2, "{fewest:?}");
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_rollout_that_never_comes_up_says_so_keeps_the_old_pods_and_goes_back() {
    let (world, operator, player) = running("stalled", 1, 2).await;
    let (prefill, decode) = (pods(&world, "prefill").await, pods(&world, "decode").await);
    let mut broken = spec(1, 2);
    broken["engine"]["image"] = json!(BROKEN);
    world.apply("smol", broken).await;
    let object = eventually("the condition", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        (condition(&object, "Progressing") == ("False".into(), "RolloutStalled".into()))
            .then_some(object)
    })
    .await;
    assert_eq!(condition(&object, "Degraded").1, "RolloutStalled");
    assert_eq!(condition(&object, "Available").0, "True");
    assert_eq!(object.status.unwrap().rollout.unwrap().new_decode, 0);
    await_event(&world, "RolloutStalled").await;
    assert!(pods(&world, "decode").await.is_superset(&decode));
    world.apply("smol", spec(1, 2)).await;
    settled(&world, 1, 2).await;
    assert_eq!(pods(&world, "decode").await, decode);
    assert_eq!(pods(&world, "prefill").await, prefill);
    let fewest = player.fewest();
    assert!(fewest.prefill >= 1 && fewest.decode >= 2, "{fewest:?}");
    operator.stop().await;
    world.end().await;
}
