//! The devices of a pod.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// GPUs of every pod of a pool, by a device plugin or by a claim: exactly one of `resourceName` and
/// `resourceClaimTemplate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.resourceName) != has(self.resourceClaimTemplate)")
        .message("say where the GPUs come from: gpus.resourceName (a device plugin) or gpus.resourceClaimTemplate (DRA), one of the two"),
    validation = Rule::new("!has(self.resourceClaimTemplate) || self.count == 1")
        .message("the claim template says how many GPUs there are: leave out gpus.count"),
    validation = Rule::new("!has(self.request) || has(self.resourceClaimTemplate)")
        .message("gpus.request is the name of a request in a claim: it needs gpus.resourceClaimTemplate"),
)]
pub struct Gpus {
    /// A device plugin's resource, such as `nvidia.com/gpu`. The engine alone gets the GPUs, so `transfer.split` must be
    /// `Engine` or `Auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')")
        .message("write the resource as a node's `allocatable` has it, such as nvidia.com/gpu"))]
    pub resource_name: Option<String>,
    /// How many of `resourceName`; default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub count: u32,
    /// A ResourceClaimTemplate (resource.k8s.io/v1) of the same namespace. Engine and agent share the claim, so both see
    /// the same GPUs and the agent splits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub resource_claim_template: Option<String>,
    /// The request of the claim that is the GPUs, where the claim has others too; default: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub request: Option<String>,
}

const fn one() -> u32 {
    1
}
