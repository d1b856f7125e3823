//! The network cards of a pod.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The RDMA profile of a pool: what its agents get, and how they use it. Exactly one of `resourceName` and
/// `resourceClaimTemplate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.resourceName) != has(self.resourceClaimTemplate)")
        .message("say where the network card comes from: rdma.resourceName (a device plugin) or rdma.resourceClaimTemplate (DRA), one of the two"),
    validation = Rule::new("!has(self.request) || has(self.resourceClaimTemplate)")
        .message("rdma.request is the name of a request in a claim: it needs rdma.resourceClaimTemplate"),
)]
pub struct Rdma {
    /// A device plugin's resource, such as `rdma/hca_shared_devices_a`. The agent gets as many of it as `rails` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')")
        .message("write the resource as a node's `allocatable` has it, such as rdma/hca_shared_devices_a"))]
    pub resource_name: Option<String>,
    /// A ResourceClaimTemplate (resource.k8s.io/v1) of the same namespace. The same name as `gpus.resourceClaimTemplate`
    /// means one claim with both, say on one PCIe root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub resource_claim_template: Option<String>,
    /// The request of the claim that is the network card, where the claim has others too; default: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub request: Option<String>,
    /// Multus networks that the pods join, as `name` or `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 317)))]
    #[x_kube(validation = Rule::new("self.all(n, n.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'))")
        .message("write a network as name or namespace/name of a NetworkAttachmentDefinition"))]
    pub networks: Vec<String>,
    /// The index of the GID that RoCE uses; default: the agent looks for a RoCE v2 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub gid_index: Option<u8>,
    /// How many network cards a link goes by at most, where the pods of both pools have so many; of two numbers the smaller
    /// holds. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4))]
    pub rails: Option<u8>,
    /// The traffic class of each priority, so that switches can tell them apart; default: the fabric's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<TrafficClass>,
}

/// A traffic class (the IPv6 header's byte: DSCP and ECN) for each priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficClass {
    /// That of anchors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub anchor: Option<u8>,
    /// That of residuals.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub residual: Option<u8>,
}
