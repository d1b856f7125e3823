//! What the chart makes, before a real API server: its rights for one namespace, and cert-manager's objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Config};
use lynx_crds::LynxDeployment;
use serde_json::{Value, json};

use crate::autoscaling::autoscaled;
use crate::harness::{World, condition, eventually};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn output(program: &Path, arguments: &[&str]) -> String {
    let found = Command::new(program).args(arguments).output().unwrap();
    assert!(found.status.success(), "{found:?}");
    String::from_utf8(found.stdout).unwrap()
}

/// What the chart makes for a release of this namespace, with these values.
fn rendered(namespace: &str, values: &str) -> Vec<Value> {
    let folder = output(&root().join("scripts/kube-tools"), &["--where", "helm"]);
    let chart = root().join("charts/lynx");
    let chart = chart.to_str().unwrap();
    let text = output(
        &Path::new(folder.trim()).join("helm"),
        &["template", "lynx", chart, "-n", namespace, "--set", values],
    );
    let documents = text.split("\n---\n");
    documents
        .map(|text| serde_norway::from_str(text).unwrap())
        .filter(|object: &Value| !object.is_null())
        .collect()
}

/// A definition of another project's, of the version that is pinned.
pub(crate) fn definition(project: &str, file: &str) -> Value {
    let folder = output(&root().join("scripts/definitions"), &[project]);
    let text = std::fs::read_to_string(Path::new(folder.trim()).join(file)).unwrap();
    serde_norway::from_str(&text).unwrap()
}

/// Applies an object of a kind that may have been defined just now; a field that the kind doesn't have is refused.
pub(crate) async fn put_strictly(world: &World, object: &Value) {
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap();
    let kind = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    let name = text(&object["metadata"]["name"]);
    let params = PatchParams::apply("user").validation_strict();
    eventually("the object", async || {
        match api.patch(&name, &params, &Patch::Apply(object)).await {
            Ok(_) => Some(()),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{name}: {error}"),
        }
    })
    .await;
}

/// The way to the API server of the operator's account.
fn as_operator(world: &World) -> Config {
    let mut config = world.cluster.clone();
    let account = format!("system:serviceaccount:{}:lynx-operator", world.namespace);
    config.auth_info.impersonate = Some(account);
    config
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_role_in_one_namespace_is_all_that_the_operator_needs() {
    let world = World::new("namespaced").await;
    let values = format!("namespaces={{{}}},crds.install=false", world.namespace);
    let objects = rendered(&world.namespace, &values);
    let kinds: Vec<_> = objects.iter().map(|one| one["kind"].clone()).collect();
    assert!(!kinds.contains(&json!("ClusterRole")), "{kinds:?}");
    for object in objects {
        let kind = object["kind"].as_str().unwrap();
        if ["ServiceAccount", "Role", "RoleBinding", "Service"].contains(&kind) {
            world.put(object, true).await;
        }
    }
    let text = "agents: {service: lynx-operator-agents}";
    let operator = world.operator_by(&as_operator(&world), "a", text);
    // Certificates, drains, rollouts and numbers of both pools: every right has its use.
    let mut spec = autoscaled(2, 2);
    spec["transfer"] = json!({"tls": {"mode": "OperatorCA"}});
    world.apply("smol", spec).await;
    let object = eventually("both pools' numbers and a status", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        let replicas = [
            object.spec.prefill.pool.replicas,
            object.spec.decode.pool.replicas,
        ];
        let seen = object.status.as_ref()?.observed_generation;
        (replicas == [2, 2] && seen == object.metadata.generation).then_some(object)
    })
    .await;
    assert_eq!(condition(&object, "Degraded").0, "False", "{object:?}");
    let labels = ListParams::default().labels("lynx.dev/deployment=smol");
    let made = world.api::<Deployment>().list(&labels).await.unwrap();
    assert_eq!(made.items.len(), 2);
    let slices = world.api::<EndpointSlice>();
    eventually("the leader's slice", async || {
        let list = slices.list(&ListParams::default()).await.unwrap();
        list.into_iter().find(|slice| {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            name.starts_with("lynx-operator-agents-leader")
        })
    })
    .await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn cert_managers_objects_fit_its_definitions_and_name_the_deployment() {
    let world = World::new("certmanager").await;
    for file in [
        "cert-manager.io_issuers.yaml",
        "cert-manager.io_certificates.yaml",
    ] {
        world.put(definition("cert-manager", file), false).await;
    }
    let one = format!(
        "certManager.certificates[0].namespace={},certManager.certificates[0].deployment=smol",
        world.namespace
    );
    let ours = |object: &Value| object["apiVersion"] == "cert-manager.io/v1";
    let objects: Vec<_> = rendered(&world.namespace, &one)
        .into_iter()
        .filter(ours)
        .collect();
    assert_eq!(objects.len(), 4, "two issuers, an authority, a certificate");
    for object in &objects {
        put_strictly(&world, object).await;
    }
    let is_its = |object: &&Value| object["spec"]["secretName"] == "smol-cert";
    let certificate = objects.iter().find(is_its).unwrap();
    let name = format!("spiffe://cluster.local/ns/{}/lynx/smol", world.namespace);
    assert_eq!(certificate["spec"]["uris"], json!([name]));
    world.end().await;
}
