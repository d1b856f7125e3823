//! How the decode pool grows and shrinks.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::Period;
use crate::schema::bare;

/// Bounds, a target, and how patient to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas")
    .message("autoscaling.minReplicas is more than maxReplicas"))]
pub struct Autoscaling {
    /// The least number of pods; default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_replicas: i32,
    /// The largest number of pods.
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: i32,
    /// What to aim at: exactly one measure.
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

/// What autoscaling aims at: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "[has(self.runningRequests), has(self.pendingKvBytes), has(self.timeToAnchor), has(self.verifiedTokensPerSecond)].filter(x, x).size() == 1"
).message("give autoscaling exactly one target: runningRequests, pendingKvBytes, timeToAnchor or verifiedTokensPerSecond"))]
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
    /// The time from a request's arrival until its anchor is complete, such as `200ms`.
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
