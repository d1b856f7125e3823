//! What the operator answers.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each public struct inside of a function"
)]

mod conditions;

pub use conditions::{ConditionType, condition, set_condition};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::Bits;

/// What the operator last saw and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LynxDeploymentStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Available, Progressing, Degraded, LinkReady, AnchorAdapted, ScalingLimited, Unsupported: one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// A hash of what decides whether two pods fit together; pods of different hashes never pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_hash: Option<String>,
    /// The prefill pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<RoleStatus>,
    /// The decode pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<RoleStatus>,
    /// How far a rollout is, as long as one is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Selects the decode pods, in the syntax of `kubectl get pods --selector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The links between the pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkStatus>,
    /// The links by class: `same` within one place of `spec.topology.nodeLabel`, `cross` between two, `any` where places
    /// aren't known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["class".into()]))]
    pub links: Vec<LinkClassStatus>,
    /// The anchor that new transfers get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<AnchorStatus>,
    /// What autoscaling last decided, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,
    /// How many of a hundred drafted tokens were right, lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub acceptance_percent: Option<u8>,
}

/// A pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleStatus {
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods that finish what is in flight before they go.
    #[serde(default)]
    pub draining: i32,
}

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The revision that prefill pods come to have, as their label `lynx.dev/revision` says.
    pub prefill: String,
    /// The revision that decode pods come to have.
    pub decode: String,
    /// Prefill pods of older revisions.
    pub old_prefill: i32,
    /// Decode pods of older revisions.
    pub old_decode: i32,
    /// Prefill pods of the new revision that work.
    pub new_prefill: i32,
    /// Decode pods of the new revision that work.
    pub new_decode: i32,
    /// When it last came a step further.
    pub since: Time,
}

/// The links between the pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// What the slowest link carries at best, in bits per second.
    pub rate_bits_per_second: i64,
    /// What carries it: RDMA or TCP.
    pub transport: String,
    /// Both, for people.
    pub summary: String,
}

/// The links of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkClassStatus {
    /// Which: `same`, `cross` or `any`.
    pub class: String,
    /// What the slowest of them carries at best, in bits per second.
    pub rate_bits_per_second: i64,
    /// What carries it: RDMA or TCP.
    pub transport: String,
    /// Both, for people.
    pub summary: String,
}

/// The anchor that new transfers get.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnchorStatus {
    /// Its mean width in bits.
    pub bits: Bits,
    /// Why this width.
    pub reason: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// How many pods autoscaling wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingStatus {
    /// Prefill pods.
    pub prefill: i32,
    /// Decode pods.
    pub decode: i32,
    /// Why: `Load`, or what limits the pools.
    pub reason: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
