//! How the pools grow and shrink.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::Period;
use crate::schema::bare;

/// How many pods the load asks for, of both pools in one decision: bounds, targets, and how patient to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.minReplicas <= self.maxReplicas")
        .message("autoscaling.minReplicas is more than maxReplicas"),
    validation = Rule::new("has(self.prefill) || !has(self.ratio) && !has(self.target.timeToAnchor)")
        .message("ratio and target.timeToAnchor move the prefill pool: give autoscaling.prefill its bounds"),
    validation = Rule::new("!has(self.prefill) || has(self.ratio) || has(self.target.timeToAnchor)")
        .message("nothing says how many prefill pods there should be: give autoscaling target.timeToAnchor, ratio, or both"),
    validation = Rule::new("has(self.ratio) || [has(self.target.runningRequests), has(self.target.pendingKvBytes), has(self.target.verifiedTokensPerSecond)].exists(x, x)")
        .message("nothing says how many decode pods there should be: give autoscaling ratio, or a target of its own, such as runningRequests"),
    validation = Rule::new(
        "!has(self.ratio) || !has(self.prefill) || ![self.ratio.min, self.ratio.max].all(r, r.matches('^[1-9][0-9]{0,2}:[1-9][0-9]{0,2}$')) || self.minReplicas * int(self.ratio.min.split(':')[0]) <= self.prefill.maxReplicas * int(self.ratio.min.split(':')[1]) && self.prefill.minReplicas * int(self.ratio.max.split(':')[1]) <= self.maxReplicas * int(self.ratio.max.split(':')[0])"
    ).message("no two pools keep to autoscaling.ratio within these bounds: the least of one pool is more than the most of the other allows"),
)]
pub struct Autoscaling {
    /// The least number of decode pods; default: 1. Pools go down to their least and never to none: nothing would be there
    /// to hold the request that asks for more.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_replicas: i32,
    /// The largest number of decode pods.
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: i32,
    /// The prefill pool's bounds; default: it keeps `prefill.replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<PrefillBounds>,
    /// What to aim at: one measure or more. Of several, the one that asks for the most decode pods counts.
    pub target: Target,
    /// How long a need for more pods must last; default: 15s.
    #[serde(default = "scale_up")]
    pub scale_up_stabilization: Period,
    /// How long a surplus of pods must last; default: 5m.
    #[serde(default = "scale_down")]
    pub scale_down_stabilization: Period,
    /// How many prefill pods there may be for each decode pod; default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// How many GPUs both pools may have together, pods that finish what they have included; default: any number. A pod has
    /// `gpus.count` of them, or `engine.tensorParallelSize` where a claim gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub gpu_budget: Option<u32>,
}

/// Fewest and most prefill pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas")
    .message("autoscaling.prefill.minReplicas is more than its maxReplicas"))]
pub struct PrefillBounds {
    /// The least number of prefill pods; default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_replicas: i32,
    /// The largest number of prefill pods.
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: i32,
}

const fn one() -> i32 {
    1
}

const fn scale_up() -> Period {
    Period::from_secs(15)
}

const fn scale_down() -> Period {
    Period::from_secs(300)
}

/// What autoscaling aims at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "[has(self.runningRequests), has(self.pendingKvBytes), has(self.timeToAnchor), has(self.verifiedTokensPerSecond)].exists(x, x)"
).message("give autoscaling a target: runningRequests, pendingKvBytes or verifiedTokensPerSecond for the decode pool, timeToAnchor for the prefill pool"))]
pub struct Target {
    /// Requests that a decode pod answers or holds back at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub running_requests: Option<u32>,
    /// KV bytes that a decode pod waits for, such as `512Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<Quantity>")]
    #[x_kube(validation = Rule::new("quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("write a quantity of bytes that is more than nothing, such as 512Mi"))]
    pub pending_kv_bytes: Option<Quantity>,
    /// The time from a request's arrival until its anchor is complete, such as `200ms`: where it takes longer and the prefill
    /// pods are busy, there are to be more of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_anchor: Option<Period>,
    /// Tokens that a decode pod verifies in a second: what is drafted and not accepted doesn't count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub verified_tokens_per_second: Option<u32>,
}

/// Prefill pods to decode pods, as `P:D`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[self.min, self.max].all(r, r.matches('^[1-9][0-9]{0,2}:[1-9][0-9]{0,2}$'))")
        .message("write a ratio as prefill:decode, such as 1:4"),
    validation = Rule::new(
        "![self.min, self.max].all(r, r.matches('^[1-9][0-9]{0,2}:[1-9][0-9]{0,2}$')) || int(self.min.split(':')[0]) * int(self.max.split(':')[1]) <= int(self.max.split(':')[0]) * int(self.min.split(':')[1])"
    ).message("ratio.min has more prefill pods for a decode pod than ratio.max"),
)]
pub struct Ratio {
    /// The fewest prefill pods, such as `1:4`: one for four decode pods.
    #[schemars(length(max = 7))]
    pub min: String,
    /// The most prefill pods, such as `1:1`.
    #[schemars(length(max = 7))]
    pub max: String,
}
