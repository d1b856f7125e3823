//! What goes wrong around an operator: its API server away, its watches forgotten, others' writes, its own end.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use lynx_crds::LynxDeployment;
use serde_json::json;

use crate::gate::Gate;
use crate::harness::{Operator, World, condition, embedded, eventually};
use crate::objects::settled;

/// Within this an operator has noticed a change, whatever was before: pauses end at three seconds, and the rest is for a
/// machine with other things to do. Pauses as kube's own are would be half a minute and more.
const SOON: Duration = Duration::from_secs(25);

/// Of an operator of one namespace, besides that of the LynxDeployments themselves.
const WATCHES: u64 = 7;

fn spec(prefill: i32, decode: i32) -> serde_json::Value {
    let mut spec = embedded();
    spec["prefill"] = json!({"replicas": prefill});
    spec["decode"] = json!({"replicas": decode});
    spec
}

/// How many prefill pods its Deployment is for.
async fn prefill(world: &World) -> Option<i32> {
    world.deployment("prefill").await?.spec?.replicas
}

/// Changes the spec, and waits until the operator has carried it out, no longer than `within`.
async fn follows(world: &World, replicas: i32, within: Duration) {
    world.apply("smol", spec(replicas, 1)).await;
    let done = eventually("the number of prefill pods", async || {
        (prefill(world).await? == replicas).then_some(())
    });
    let done = tokio::time::timeout(within, done).await;
    assert!(
        done.is_ok(),
        "{replicas} prefill pods not within {within:?}"
    );
}

async fn requests(operator: &Operator) -> u64 {
    operator.figure("lynx_operator_api_requests_total").await
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn after_the_api_server_was_away_the_next_change_is_carried_out_within_seconds() {
    let world = World::new("away").await;
    let gate = Gate::open(&world.client).await;
    let operator = world.operator_by(&gate.config, "a", "");
    world.apply("smol", spec(1, 1)).await;
    settled(&world, "smol").await;
    let failures = async || operator.figure("lynx_operator_watch_failures_total").await;
    for (replicas, times) in [(2, 2), (3, 6)] {
        let wanted = failures().await + WATCHES * times;
        gate.close();
        eventually("watches that have failed so many times each", async || {
            (failures().await >= wanted).then_some(())
        })
        .await;
        gate.reopen();
        // The lease may have been lost meanwhile: to lead again isn't what is measured.
        operator.leads().await;
        follows(&world, replicas, SOON).await;
    }
    operator.stop().await;
    world.end().await;
}

/// Kills the real one. It starts again by itself.
fn restart_the_api_server() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/cluster/control-plane"
    );
    let done = Command::new(script).arg("restart-api").status().unwrap();
    assert!(done.success());
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn after_each_restart_of_the_api_server_the_next_change_is_carried_out_within_seconds() {
    let world = World::new("restarts").await;
    let operator = world.operator("a");
    world.apply("smol", spec(1, 1)).await;
    settled(&world, "smol").await;
    for replicas in 2..4 {
        restart_the_api_server();
        eventually("an API server", async || {
            let api = world.api::<LynxDeployment>();
            let request = Patch::Merge(json!({"spec": {"prefill": {"replicas": replicas}}}));
            let changed = api.patch("smol", &PatchParams::default(), &request).await;
            changed.ok().map(drop)
        })
        .await;
        let begun = tokio::time::Instant::now();
        eventually("the number of prefill pods", async || {
            let list = world.api::<Deployment>();
            let list = list.list(&ListParams::default()).await.ok()?;
            let numbers = list.iter().filter_map(|one| one.spec.as_ref()?.replicas);
            numbers.into_iter().any(|one| one == replicas).then_some(())
        })
        .await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn watches_whose_place_is_forgotten_list_anew_and_see_what_went_meanwhile() {
    let world = World::new("expired").await;
    let gate = Gate::open(&world.client).await;
    let operator = world.operator_by(&gate.config, "a", "");
    world.apply("smol", spec(1, 1)).await;
    settled(&world, "smol").await;
    let before = world.deployment("decode").await.unwrap();
    gate.forget(8);
    // Gone while nobody watches, so that no event ever tells of it.
    let name = before.name_any();
    let api = world.api::<Deployment>();
    api.delete(&name, &DeleteParams::background())
        .await
        .unwrap();
    eventually("watches that were told", async || {
        (gate.unforgotten() == 0).then_some(())
    })
    .await;
    eventually("another Deployment in its place", async || {
        let now = world.deployment("decode").await?;
        (now.uid() != before.uid() && now.metadata.deletion_timestamp.is_none()).then_some(())
    })
    .await;
    follows(&world, 2, SOON).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn writes_that_meet_others_are_made_again_until_all_is_as_it_should_be() {
    let world = World::new("conflicts").await;
    let gate = Gate::open(&world.client).await;
    let operator = world.operator_by(&gate.config, "a", "");
    operator.leads().await;
    gate.conflict(25);
    world.apply("smol", spec(1, 1)).await;
    eventually("writes that were refused", async || {
        (gate.unrefused() == 0).then_some(())
    })
    .await;
    let name = eventually("the prefill Deployment", async || {
        Some(world.deployment("prefill").await?.name_any())
    })
    .await;
    // And somebody who changes what is the operator's, again and again.
    for round in 0..5 {
        let patch = json!({"spec": {"replicas": 7 + round}});
        world.merge::<Deployment>(&name, patch).await;
        eventually("the spec's number", async || {
            (prefill(&world).await? == 1).then_some(())
        })
        .await;
    }
    eventually("a status without a complaint", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        (condition(&object, "Degraded").0 == "False").then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_look_at_what_is_as_it_should_be_asks_the_api_server_for_nothing() {
    let world = World::new("quiet").await;
    let operator = world.operator("a");
    world.apply("smol", spec(1, 1)).await;
    settled(&world, "smol").await;
    eventually("a look without a request", async || {
        let looks = operator.figure("lynx_operator_reconciles_total").await;
        let (gets, lists, writes) = asked(&operator).await;
        let patch = json!({"metadata": {"annotations": {"touched": looks.to_string()}}});
        world.merge::<LynxDeployment>("smol", patch).await;
        operator.looks_again(looks).await;
        (asked(&operator).await == (gets, lists, writes)).then_some(())
    })
    .await;
    assert!(requests(&operator).await > 0);
    operator.stop().await;
    world.end().await;
}

/// Requests but for those of the lease, which renews itself by itself.
async fn asked(operator: &Operator) -> (u64, u64, u64) {
    let of = async |verb: &str| {
        let series = format!("lynx_operator_api_requests_total{{verb=\"{verb}\"");
        operator.figure(&series).await
    };
    let writes = operator.figure("lynx_operator_objects_applied_total").await
        + operator
            .figure("lynx_operator_statuses_written_total")
            .await;
    (of("get").await, of("list").await, writes)
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn leaders_that_are_killed_one_after_the_other_leave_nothing_half_done() {
    let world = World::new("killed").await;
    let election = "leaderElection: {durationSeconds: 4, graceSeconds: 3}";
    let names = ["a", "bb", "ccc", "dddd"];
    let mut last = None;
    for (round, name) in names.into_iter().enumerate() {
        let gate = Gate::open(&world.client).await;
        let operator = world.operator_by(&gate.config, name, election);
        let replicas = 1 + i32::try_from(round).unwrap();
        world.apply("smol", spec(replicas, 2)).await;
        eventually("the new leader's work", async || {
            (prefill(&world).await? == replicas).then_some(())
        })
        .await;
        // In the middle of the next change it is cut off for good: nothing is given back, nothing is finished.
        world.apply("smol", spec(replicas + 1, 2)).await;
        gate.close();
        last = Some((gate, operator));
    }
    let (gate, operator) = last.unwrap();
    gate.reopen();
    let wanted = i32::try_from(names.len()).unwrap() + 1;
    eventually("the last change", async || {
        (prefill(&world).await? == wanted).then_some(())
    })
    .await;
    let params = ListParams::default().labels("lynx.dev/deployment=smol");
    eventually("one Deployment of each role, and no marks", async || {
        let deployments = world.api::<Deployment>().list(&params).await.unwrap();
        let pods = world.api::<Pod>().list(&params).await.unwrap();
        let marked = |pod: &Pod| pod.annotations().contains_key("lynx.dev/drain-until");
        (deployments.items.len() == 2 && !pods.iter().any(marked)).then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}
