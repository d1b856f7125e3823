//! Two replicas.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use serde_json::json;

use crate::harness::{World, embedded, eventually};

/// The one address behind the agents' Service.
async fn leader_ip(world: &World) -> Option<String> {
    let slices = world.api::<EndpointSlice>();
    let slice = slices.get_opt("agents-leader-ipv4").await.unwrap()?;
    slice.endpoints.first()?.addresses.first().cloned()
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn one_replica_writes_and_the_other_takes_over_when_it_ends() {
    let world = World::new("leaders").await;
    let service = json!({"metadata": {"name": "agents"}, "spec": {"ports": [{"name": "grpc", "port": 9090}]}});
    let services = world.api::<Service>();
    services
        .create(
            &PostParams::default(),
            &serde_json::from_value(service).unwrap(),
        )
        .await
        .unwrap();
    let first = world.operator("a");
    first.leads().await;
    let second = world.operator("bb");
    for operator in [&first, &second] {
        eventually("readiness", async || {
            operator
                .get("/readyz")
                .await
                .contains("200 OK")
                .then_some(())
        })
        .await;
    }
    assert!(
        second
            .get("/metrics")
            .await
            .contains("lynx_operator_leading 0")
    );
    eventually("the slice", async || {
        (leader_ip(&world).await? == "10.9.8.1").then_some(())
    })
    .await;

    world.apply("smol", embedded()).await;
    eventually("the Deployment", async || world.deployment("decode").await).await;
    assert_eq!(
        second.figure("lynx_operator_objects_applied_total").await,
        0
    );

    first.stop().await;
    second.leads().await;
    eventually("the slice of the other", async || {
        (leader_ip(&world).await? == "10.9.8.2").then_some(())
    })
    .await;
    let mut spec = embedded();
    spec["prefill"] = json!({"replicas": 2});
    world.apply("smol", spec).await;
    eventually("the new number", async || {
        let spec = world.deployment("prefill").await?.spec?;
        (spec.replicas == Some(2)).then_some(())
    })
    .await;
    second.stop().await;
    world.end().await;
}
