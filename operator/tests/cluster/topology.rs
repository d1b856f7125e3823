//! Where the real scheduler puts pods, on nodes that are objects and nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::{Role, from_operator};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agents::{Agent, hello, ready};
use crate::harness::{World, eventually};

/// Nodes of one test: nobody else's pods bear their taint.
struct Nodes<'a> {
    world: &'a World,
    racks: BTreeMap<String, String>,
    alive: Option<JoinHandle<()>>,
}

impl<'a> Nodes<'a> {
    /// A node for each rack named, with one network card each.
    async fn new(world: &'a World, racks: &[&str]) -> Self {
        let card = json!({"rdma/hca": "1"});
        let kinds: Vec<_> = racks.iter().map(|rack| (*rack, card.clone())).collect();
        Self::with(world, &kinds).await
    }

    /// A node for each rack named, with what device plugins there offer.
    async fn with(world: &'a World, kinds: &[(&str, Value)]) -> Self {
        let mut nodes = Self {
            world,
            racks: BTreeMap::new(),
            alive: None,
        };
        for (place, (rack, devices)) in kinds.iter().enumerate() {
            let name = format!("{}-{place}", world.namespace);
            nodes.add(&name, rack, devices).await;
            nodes.racks.insert(name, (*rack).to_owned());
        }
        let names: Vec<_> = nodes.racks.keys().cloned().collect();
        nodes.alive = Some(tokio::spawn(live(world.client.clone(), names)));
        nodes
    }

    async fn add(&self, name: &str, rack: &str, devices: &Value) {
        let mut amount = json!({"cpu": "8", "memory": "64Gi", "pods": "20"});
        let devices = devices.as_object().unwrap().clone();
        amount.as_object_mut().unwrap().extend(devices);
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"rack": rack, "kubernetes.io/hostname": name}},
            "spec": {"taints": [{"key": "test", "value": self.world.namespace, "effect": "NoSchedule"}]},
            "status": {
                "capacity": amount, "allocatable": amount,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Played", "message": "",
                    "lastHeartbeatTime": now, "lastTransitionTime": now}],
            },
        });
        self.world.put(node, false).await;
    }

    /// Where a role's pods are.
    async fn of(&self, role: &str) -> Vec<Option<String>> {
        let labels = format!("lynx.dev/deployment=smol,lynx.dev/role={role}");
        let pods = self.world.api::<Pod>();
        let list = pods.list(&ListParams::default().labels(&labels)).await;
        list.unwrap()
            .into_iter()
            .map(|pod| pod.spec.and_then(|spec| spec.node_name))
            .collect()
    }

    async fn scheduled(&self, role: &str) -> String {
        eventually(role, async || {
            self.of(role).await.into_iter().flatten().next()
        })
        .await
    }

    async fn end(self) {
        if let Some(alive) = &self.alive {
            alive.abort();
        }
        let nodes: Api<Node> = Api::all(self.world.client.clone());
        let leases: Api<Lease> = Api::namespaced(self.world.client.clone(), "kube-node-lease");
        for name in self.racks.keys() {
            nodes.delete(name, &DeleteParams::default()).await.unwrap();
            leases.delete(name, &DeleteParams::default()).await.ok();
        }
    }
}

/// The sign of life that kubelets give.
async fn live(client: Client, nodes: Vec<String>) {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    loop {
        for name in &nodes {
            let now = k8s_openapi::jiff::Timestamp::now();
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                    "renewTime": format!("{now:.6}")},
            });
            let params = PatchParams::apply("kubelet").force();
            leases
                .patch(name, &params, &Patch::Apply(&lease))
                .await
                .ok();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// A pool whose pods bear the nodes' taint.
fn pool(world: &World, more: Value) -> Value {
    let mut pool =
        json!({"template": {"tolerations": [{"key": "test", "value": world.namespace}]}});
    pool.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    pool
}

fn spec(prefill: Value, decode: Value) -> Value {
    json!({
        "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
        "engine": {"type": "Custom", "image": "engine:1"},
        "prefill": prefill, "decode": decode,
    })
}

/// Waits until the status says of pods that have no node what it should. Before nodes are ready it says other things.
async fn complains(world: &World, rightly: impl Fn(&str) -> bool) {
    eventually("a complaint about the scheduler", async || {
        let object = world.api::<LynxDeployment>().get("smol").await.unwrap();
        let conditions = object.status?.conditions;
        let progressing = conditions
            .into_iter()
            .find(|one| one.type_ == "Progressing")?;
        let message = progressing.message;
        (message.contains("is not scheduled") && rightly(&message)).then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn a_decode_pod_lands_in_the_rack_of_a_prefill_pod_and_waits_with_a_reason_where_that_is_full()
 {
    let world = World::new("rack").await;
    let nodes = Nodes::new(&world, &["red", "red", "blue", "blue"]).await;
    let operator = world.operator("a");
    let rdma = json!({"rdma": {"resourceName": "rdma/hca", "networks": ["rail-0"]}});
    let mut wanted = spec(pool(&world, rdma.clone()), pool(&world, rdma));
    wanted["topology"] = json!({"mode": "Required", "nodeLabel": "rack"});
    world.apply("smol", wanted.clone()).await;
    let prefill = nodes.scheduled("prefill").await;
    let decode = nodes.scheduled("decode").await;
    assert_ne!(prefill, decode, "each node has one card");
    let rack = nodes.racks[&prefill].clone();
    assert_eq!(nodes.racks[&decode], rack);

    let pods = world
        .api::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let of = |role: &str| {
        let mut pods = pods.iter();
        let pod = pods
            .find(|pod| pod.labels()["lynx.dev/role"] == role)
            .unwrap();
        assert_eq!(pod.annotations()["k8s.v1.cni.cncf.io/networks"], "rail-0");
        pod.name_any()
    };
    let mut agent = Agent::joined(&operator, hello(&world, &of("decode"), Role::Decode)).await;
    let peer = Agent::joined(&operator, hello(&world, &of("prefill"), Role::Prefill)).await;
    peer.report(ready());
    let told = agent
        .hears(|kind| match kind {
            from_operator::Kind::Peers(peers) => peers.peers.into_iter().next(),
            _ => None,
        })
        .await;
    assert_eq!((&told.topology, &told.here), (&rack, &rack));

    wanted["decode"]["replicas"] = json!(2);
    world.apply("smol", wanted).await;
    complains(&world, |words| {
        words.contains("rdma/hca") || words.contains("affinity")
    })
    .await;
    let racks: BTreeSet<_> = nodes.of("decode").await.into_iter().flatten().collect();
    assert_eq!(racks, BTreeSet::from([decode]), "the second one waits");
    operator.stop().await;
    nodes.end().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn one_claim_gives_a_gpu_and_a_card_of_one_pcie_root_and_what_is_left_fits_nobody() {
    let world = World::new("dra").await;
    let nodes = Nodes::new(&world, &["red"]).await;
    let node = nodes.racks.keys().next().unwrap().clone();
    let driver = format!("{}.lynx.dev", world.namespace);
    for kind in ["gpu", "nic"] {
        let expression = format!(
            "device.driver == '{driver}' && device.attributes['{driver}'].kind == '{kind}'"
        );
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": format!("{kind}.{driver}")},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        });
        world.put(class, false).await;
    }
    let device = |name: &str, kind: &str, root: &str| {
        json!({"name": name, "attributes": {
            "kind": {"string": kind},
            "resource.kubernetes.io/pcieRoot": {"string": root},
        }})
    };
    // Two GPUs and one card: only one of the GPUs is beside it.
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": format!("{node}-devices")},
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [device("gpu-0", "gpu", "pci0"), device("gpu-1", "gpu", "pci1"), device("nic-1", "nic", "pci1")],
        },
    });
    world.put(slice, false).await;
    let request = |kind: &str| json!({"name": kind, "exactly": {"deviceClassName": format!("{kind}.{driver}")}});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu-and-nic"},
        "spec": {"spec": {"devices": {
            "requests": [request("gpu"), request("nic")],
            "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}],
        }}},
    });
    world.put(template, true).await;
    let operator = world.operator("a");
    let devices = json!({
        "replicas": 0,
        "gpus": {"resourceClaimTemplate": "gpu-and-nic", "request": "gpu"},
        "rdma": {"resourceClaimTemplate": "gpu-and-nic", "request": "nic"},
    });
    let mut wanted = spec(pool(&world, devices.clone()), pool(&world, devices));
    wanted["decode"]["replicas"] = json!(1);
    world.apply("smol", wanted.clone()).await;
    assert_eq!(nodes.scheduled("decode").await, node);
    let claims = kube::discovery::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
        "resource.k8s.io",
        "v1",
        "ResourceClaim",
    ));
    let claims: Api<kube::core::DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.namespace, &claims);
    let list = claims.list(&ListParams::default()).await.unwrap();
    let results = list.items[0].data["status"]["allocation"]["devices"]["results"].clone();
    let given: BTreeSet<_> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["device"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        given,
        BTreeSet::from(["gpu-1".to_owned(), "nic-1".to_owned()])
    );

    wanted["decode"]["replicas"] = json!(2);
    world.apply("smol", wanted).await;
    complains(&world, |words| words.contains("claim")).await;
    operator.stop().await;
    nodes.end().await;
    world.end().await;
}

#[tokio::test]
#[ignore = "needs a control plane: make test-cluster"]
async fn pods_go_where_device_plugins_have_gpus_and_cards_left_and_wait_where_one_of_them_is_gone()
{
    let world = World::new("plugins").await;
    let devices = |gpus: u32, cards: u32| json!({"nvidia.com/gpu": gpus.to_string(), "rdma/hca": cards.to_string()});
    // Room for two pods of two GPUs and a card: on the first node GPUs are left over then, and on the second cards.
    let kinds = [
        ("both", devices(4, 1)),
        ("both", devices(2, 4)),
        ("gpus", devices(8, 0)),
        ("cards", devices(0, 8)),
    ];
    let nodes = Nodes::with(&world, &kinds).await;
    let operator = world.operator("a");
    let each = json!({
        "gpus": {"resourceName": "nvidia.com/gpu", "count": 2},
        "rdma": {"resourceName": "rdma/hca"},
    });
    let mut wanted = spec(pool(&world, each.clone()), pool(&world, each));
    world.apply("smol", wanted.clone()).await;
    let both = BTreeSet::from([
        nodes.scheduled("prefill").await,
        nodes.scheduled("decode").await,
    ]);
    assert_eq!(
        both.len(),
        2,
        "one pod on each node that has both: {both:?}"
    );
    assert!(
        both.iter().all(|node| nodes.racks[node] == "both"),
        "{both:?}"
    );

    wanted["decode"]["replicas"] = json!(2);
    world.apply("smol", wanted.clone()).await;
    complains(&world, |words| {
        words.contains("Insufficient nvidia.com/gpu") && words.contains("Insufficient rdma/hca")
    })
    .await;
    // What one pod gives back, the one that waits takes.
    wanted["prefill"]["replicas"] = json!(0);
    world.apply("smol", wanted).await;
    let pods = world.api::<Pod>();
    let prefill = ListParams::default().labels("lynx.dev/deployment=smol,lynx.dev/role=prefill");
    let placed = eventually("a place for the second decode pod", async || {
        // No kubelet ends what is bound to a node.
        for pod in pods.list(&prefill).await.unwrap() {
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams::default().grace_period(0);
                pods.delete(&pod.name_any(), &now).await.ok();
            }
        }
        let placed: BTreeSet<_> = nodes.of("decode").await.into_iter().flatten().collect();
        (placed.len() == 2).then_some(placed)
    })
    .await;
    assert_eq!(placed, both);
    operator.stop().await;
    nodes.end().await;
    world.end().await;
}
