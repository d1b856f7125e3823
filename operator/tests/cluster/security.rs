//! Certificates, pod security, and operators of two versions.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::Role;
use lynx_tls::{Files, LoadError, Loaded, UnixTime};
use serde_json::{Value, json};
use tonic::Code;

use crate::agents::{Agent, hello, ready};
use crate::harness::{World, condition, embedded, eventually};

/// A renewal each six seconds, of an authority that outlives the test.
const SHORT: &str = "certificates: {leafSeconds: 9, authoritySeconds: 2700, overlapSeconds: 1}";

fn encrypted() -> Value {
    let mut spec = embedded();
    spec["transfer"] = json!({"tls": {"mode": "OperatorCA"}});
    spec
}

/// What pods mount, where agents would take it now: on a busy machine a renewal may come after the end.
async fn good(world: &World) -> Option<(Vec<u8>, Vec<u8>)> {
    let (chain, ca, loaded) = mounted(world).await?;
    loaded.ok()?;
    Some((chain, ca))
}

/// What pods mount, and what agents make of it.
async fn mounted(world: &World) -> Option<(Vec<u8>, Vec<u8>, Result<Loaded, LoadError>)> {
    let secret = world.api::<Secret>().get_opt("smol-tls").await.unwrap()?;
    let mut data = secret.data?;
    let mut take = |name: &str| data.remove(name).unwrap().0;
    let (chain, key, ca) = (take("tls.crt"), take("tls.key"), take("ca.crt"));
    let name = format!("spiffe://cluster.local/ns/{}/lynx/smol", world.namespace);
    let files = Files::new(&chain, &key, &ca);
    let loaded = Loaded::new(&files, Some(&name), UnixTime::now());
    Some((chain, ca, loaded))
}

async fn templates(world: &World) -> BTreeSet<String> {
    let params = ListParams::default().labels("lynx.dev/deployment=smol");
    let list = world.api::<Deployment>().list(&params).await.unwrap();
    list.iter().map(|one| one.name_any()).collect()
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn certificates_are_issued_and_renewed_and_no_pod_is_replaced() {
    let world = World::new("certificates").await;
    let operator = world.operator_with("a", SHORT);
    world.apply("smol", encrypted()).await;
    let (first, authority) = eventually("certificates", async || good(&world).await).await;
    let before = eventually("Deployments", async || {
        let all = templates(&world).await;
        (all.len() == 2).then_some(all)
    })
    .await;
    let held = world.api::<Secret>().get("smol-authority").await.unwrap();
    assert!(held.data.unwrap().contains_key("state.json"));
    let decode = world.deployment("decode").await.unwrap();
    let text = serde_json::to_string(&decode).unwrap();
    assert!(
        text.contains("smol-tls") && !text.contains("smol-authority"),
        "{text}"
    );
    let (_, bundle) = eventually("a renewal", async || {
        let now = good(&world).await?;
        (now.0 != first).then_some(now)
    })
    .await;
    assert_eq!(bundle, authority, "the authority is far from its end");
    assert_eq!(templates(&world).await, before);
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn agents_with_certificates_come_by_tls_alone_and_stay_while_those_are_renewed() {
    let world = World::new("doors").await;
    // A renewal after twenty seconds, with ten for a busy machine to carry it out in.
    let lives = "certificates: {leafSeconds: 30, authoritySeconds: 2700, overlapSeconds: 1}";
    let operator = world.operator_with("a", lives);
    world.apply("smol", encrypted()).await;
    let join = async |pod: &str| {
        eventually("a stream by TLS", async || {
            let (chain, _, loaded) = mounted(&world).await?;
            let hello = hello(&world, pod, Role::Decode);
            let agent = Agent::secured(&operator, &loaded.ok()?, hello).await.ok()?;
            Some((chain, agent))
        })
        .await
    };
    let (first, mut agent) = join("d").await;
    let clear = Agent::join(&operator, hello(&world, "e", Role::Decode)).await;
    assert_eq!(clear.err().unwrap().code(), Code::Unauthenticated);
    let (second, _other) = eventually("a renewal", async || {
        let joined = join("e").await;
        (joined.0 != first).then_some(joined)
    })
    .await;
    assert_ne!(first, second);
    // The stream of before the renewal is the same as ever.
    agent.report(ready());
    assert!(agent.heard().await.is_ok());
    eventually("both agents", async || {
        (operator.figure("lynx_operator_agents").await == 2).then_some(())
    })
    .await;
    operator.stop().await;
    world.end().await;
}

/// The namespace takes pods of the strictest kind only.
async fn restrict(world: &World) {
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let patch =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces
        .patch(
            &world.namespace,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .unwrap();
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_restricted_namespace_takes_the_pods_and_says_what_rdma_needs_besides() {
    let world = World::new("restricted").await;
    restrict(&world).await;
    let operator = world.operator("a");
    let mut spec = encrypted();
    spec["model"]["source"] = json!({"pvc": {"claimName": "models"}});
    world.apply("smol", spec.clone()).await;
    let pods = world.api::<Pod>();
    eventually("both pods", async || {
        let list = pods.list(&ListParams::default()).await.unwrap();
        (list.items.len() == 2).then_some(())
    })
    .await;

    for role in ["prefill", "decode"] {
        spec[role] = json!({"rdma": {"resourceName": "rdma/hca"}});
    }
    world.apply("smol", spec).await;
    let message = eventually("the refusal", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        let conditions = object.status?.conditions;
        let progressing = conditions
            .into_iter()
            .find(|one| one.type_ == "Progressing")?;
        progressing
            .message
            .contains("PodSecurity")
            .then_some(progressing.message)
    })
    .await;
    assert!(message.contains("IPC_LOCK"), "{message}");
    for other in [
        "runAsNonRoot",
        "seccompProfile",
        "allowPrivilegeEscalation",
        "volume",
    ] {
        assert!(!message.contains(other), "{message}");
    }
    operator.stop().await;
    world.end().await;
}

async fn images(world: &World) -> BTreeSet<String> {
    let params = ListParams::default().labels("lynx.dev/deployment=smol");
    let list = world.api::<Deployment>().list(&params).await.unwrap();
    let images = list.into_iter().filter_map(|one| {
        let pod = one.spec?.template.spec?;
        pod.init_containers?.into_iter().next()?.image
    });
    images.collect()
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn of_operators_of_two_versions_one_writes_until_it_ends() {
    let world = World::new("versions").await;
    let old = world.operator_with("a", "images: {agent: 'agent:1'}");
    old.leads().await;
    let new = world.operator_with("bb", "images: {agent: 'agent:2'}");
    world.apply("smol", embedded()).await;
    let one = |image: &str| BTreeSet::from([image.to_owned()]);
    eventually("the old one's image", async || {
        (images(&world).await == one("agent:1")).then_some(())
    })
    .await;
    let lease = world.api::<Lease>().get("lynx-operator").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap();
    assert_eq!(holder, format!("a_{}", env!("CARGO_PKG_VERSION")));
    // Somebody touches the object: both see it, and one of them acts.
    let looks = old.figure("lynx_operator_reconciles_total").await;
    let patch = json!({"metadata": {"annotations": {"touched": "once"}}});
    world.merge::<LynxDeployment>("smol", patch).await;
    old.looks_again(looks).await;
    assert_eq!(images(&world).await, one("agent:1"));
    assert_eq!(new.figure("lynx_operator_objects_applied_total").await, 0);

    old.stop().await;
    new.leads().await;
    eventually("the new one's image, and no other", async || {
        (images(&world).await == one("agent:2")).then_some(())
    })
    .await;
    let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
    assert_eq!(condition(&object, "Degraded").0, "False");
    new.stop().await;
    world.end().await;
}
