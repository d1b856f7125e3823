//! One node that is an object only.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// Where all deployments are.
pub(crate) const NAMESPACE: &str = "scale";
const NAME: &str = "node-of-objects";
/// As a kubelet does it.
const RENEW: Duration = Duration::from_secs(10);

/// Makes the namespace and the node, and keeps the node alive as long as this process lives.
pub(crate) async fn create(client: &Client) -> Result<(), kube::Error> {
    let params = PatchParams::apply("scale").force();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    namespaces
        .patch(NAMESPACE, &params, &Patch::Apply(&namespace))
        .await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}});
    nodes.patch(NAME, &params, &Patch::Apply(&node)).await?;
    let client = client.clone();
    beat(&client).await?;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RENEW).await;
            if let Err(error) = beat(&client).await {
                println!("the node's heart missed a beat: {error}");
            }
        }
    });
    Ok(())
}

async fn beat(client: &Client) -> Result<(), kube::Error> {
    let now = Timestamp::now();
    let room =
        json!({"cpu": "100000", "memory": "100Ti", "pods": "20000", "ephemeral-storage": "100Ti"});
    let status = json!({
        "apiVersion": "v1", "kind": "Node",
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Played", "message": "",
                "lastHeartbeatTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }],
        },
    });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME},
        "spec": {
            "holderIdentity": NAME, "leaseDurationSeconds": 40,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
        },
    });
    let params = PatchParams::apply("scale").force();
    leases.patch(NAME, &params, &Patch::Apply(&lease)).await?;
    Ok(())
}
