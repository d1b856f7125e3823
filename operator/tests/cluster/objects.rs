//! Objects, status and refusals.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use lynx_crds::LynxDeployment;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::harness::{World, condition, embedded, eventually};

/// Names, owners and versions of what has the deployment's label.
async fn versions<K>(world: &World, into: &mut BTreeMap<String, (Option<String>, Option<String>)>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let params = ListParams::default().labels("lynx.dev/deployment=smol");
    for object in world.api::<K>().list(&params).await.unwrap() {
        let metadata = object.meta();
        let owner = metadata.owner_references.iter().flatten().next();
        into.insert(
            format!("{} {}", K::kind(&()), object.name_any()),
            (
                owner.map(|owner| owner.uid.clone()),
                metadata.resource_version.clone(),
            ),
        );
    }
}

async fn children(world: &World) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let mut all = BTreeMap::new();
    versions::<Deployment>(world, &mut all).await;
    versions::<Service>(world, &mut all).await;
    versions::<ConfigMap>(world, &mut all).await;
    versions::<ServiceAccount>(world, &mut all).await;
    versions::<NetworkPolicy>(world, &mut all).await;
    versions::<PodDisruptionBudget>(world, &mut all).await;
    all
}

/// The object, once its status is about its newest generation.
pub(crate) async fn settled(world: &World, name: &str) -> LynxDeployment {
    eventually("a status", async || {
        let object = world.api::<LynxDeployment>().get(name).await.unwrap();
        let seen = object.status.as_ref()?.observed_generation;
        (seen == object.metadata.generation).then_some(object)
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_deployment_becomes_objects_that_it_owns() {
    let world = World::new("objects").await;
    let operator = world.operator("a");
    let object = world.apply("smol", embedded()).await;
    let object_now = settled(&world, "smol").await;
    assert_eq!(
        condition(&object_now, "Available"),
        ("False".into(), "NoDecodePod".into())
    );
    // The controllers write into statuses for a while.
    let before = eventually("quiet", async || {
        let first = children(&world).await;
        let looks = operator.figure("lynx_operator_reconciles_total").await;
        let patch = json!({"metadata": {"annotations": {"touched": looks.to_string()}}});
        world.merge::<LynxDeployment>("smol", patch).await;
        operator.looks_again(looks).await;
        (first == children(&world).await).then_some(first)
    })
    .await;
    assert_eq!(before.len(), 11, "{before:#?}");
    assert!(before.values().all(|(owner, _)| *owner == object.uid()));
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn what_somebody_else_changes_or_deletes_comes_back() {
    let world = World::new("drift").await;
    let operator = world.operator("a");
    world.apply("smol", embedded()).await;
    settled(&world, "smol").await;
    let foreign = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [{"name": "engine", "image": "other"}]}}},
    });
    let deployments = world.api::<Deployment>();
    let params = PatchParams::apply("somebody").force();
    let name = world.deployment("decode").await.unwrap().name_any();
    deployments
        .patch(&name, &params, &Patch::Apply(&foreign))
        .await
        .unwrap();
    let services = world.api::<Service>();
    services
        .delete("smol", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the operator's image", async || {
        let spec = deployments.get(&name).await.unwrap().spec.unwrap();
        let image = spec.template.spec.unwrap().containers[0].image.clone();
        (image.as_deref() == Some("lynx:latest")).then_some(())
    })
    .await;
    eventually("the Service", async || {
        services.get_opt("smol").await.unwrap()
    })
    .await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn an_orphan_of_ours_goes_and_a_stranger_with_our_label_stays() {
    let world = World::new("orphans").await;
    let operator = world.operator("a");
    let object = world.apply("smol", embedded()).await;
    settled(&world, "smol").await;
    let maps = world.api::<ConfigMap>();
    let map = |name: &str, owned: bool| -> ConfigMap {
        let owners = owned.then(|| vec![object.controller_owner_ref(&()).unwrap()]);
        serde_json::from_value(json!({"metadata": {
            "name": name,
            "labels": {"lynx.dev/deployment": "smol", "app.kubernetes.io/managed-by": "lynx-operator"},
            "ownerReferences": owners,
        }}))
        .unwrap()
    };
    let params = PostParams::default();
    maps.create(&params, &map("stranger", false)).await.unwrap();
    maps.create(&params, &map("orphan", true)).await.unwrap();
    eventually("the orphan's end", async || {
        maps.get_opt("orphan")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    assert!(maps.get_opt("stranger").await.unwrap().is_some());
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_name_that_is_taken_is_told_and_taken_over_by_nobody() {
    let world = World::new("taken").await;
    let services = world.api::<Service>();
    let theirs = json!({"metadata": {"name": "smol"}, "spec": {"ports": [{"port": 99}]}});
    services
        .create(
            &PostParams::default(),
            &serde_json::from_value(theirs).unwrap(),
        )
        .await
        .unwrap();
    let operator = world.operator("a");
    world.apply("smol", embedded()).await;
    eventually("the condition", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        (condition(&object, "Degraded").1 == "NameTaken").then_some(())
    })
    .await;
    let port = services
        .get("smol")
        .await
        .unwrap()
        .spec
        .unwrap()
        .ports
        .unwrap()[0]
        .port;
    assert_eq!(port, 99);
    services
        .delete("smol", &DeleteParams::default())
        .await
        .unwrap();
    eventually("recovery", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        (condition(&object, "Degraded").0 == "False").then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_refused_spec_gets_a_condition_and_an_event_and_waits_for_a_change() {
    let world = World::new("refused").await;
    let operator = world.operator("a");
    let mut spec = embedded();
    spec["engine"]["ports"] = json!([{"name": "mine", "containerPort": 8080}]);
    world.apply("smol", spec).await;
    let object = settled(&world, "smol").await;
    assert_eq!(
        condition(&object, "Degraded"),
        ("True".into(), "InvalidSpec".into())
    );
    assert!(world.deployment("decode").await.is_none());
    eventually("the event", async || {
        let events: Api<Event> = world.api();
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter()
            .any(|event| event.reason.as_deref() == Some("InvalidSpec"))
            .then_some(())
    })
    .await;
    let looks = operator.figure("lynx_operator_reconciles_total").await;
    assert!(
        looks < 20,
        "{looks} looks at a spec that didn't change: it is tried again and again"
    );
    world.apply("smol", embedded()).await;
    eventually("the Deployment", async || world.deployment("decode").await).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn the_api_server_refuses_what_the_rules_refuse() {
    let world = World::new("rules").await;
    let api = world.api::<LynxDeployment>();
    for (name, path, value, sentence) in [
        (
            "a",
            "/transfer",
            json!({"anchor": {"minBits": 5, "maxBits": 3}}),
            "minBits is more than maxBits",
        ),
        (
            "a",
            "/transfer",
            json!({"anchor": {"maxBits": 9}}),
            "maxBits",
        ),
        (
            "a",
            "/decode",
            json!({"autoscaling": {"minReplicas": 5, "maxReplicas": 2, "target": {"runningRequests": 1}}}),
            "more than maxReplicas",
        ),
        ("a", "/decode", json!({"replcas": 3}), "replcas"),
        (
            "a-name-that-is-too-long-for-the-objects-made-of-it",
            "/decode",
            json!({}),
            "too long",
        ),
    ] {
        let mut spec = embedded();
        spec[path.trim_start_matches('/')] = value;
        let object = json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
            "metadata": {"name": name}, "spec": spec,
        });
        let params = PatchParams::apply("user").validation_strict();
        let refused = api.patch(name, &params, &Patch::Apply(&object)).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(sentence), "{message}");
    }
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_deleted_deployment_leaves_nothing() {
    let world = World::new("deleted").await;
    let operator = world.operator("a");
    world.apply("smol", embedded()).await;
    settled(&world, "smol").await;
    let api = world.api::<LynxDeployment>();
    api.delete("smol", &DeleteParams::default()).await.unwrap();
    eventually("an empty namespace", async || {
        children(&world).await.is_empty().then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}
