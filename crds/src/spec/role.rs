//! The two pools.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{Autoscaling, Gpus, Rdma, Template};

/// What both pools have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// How many pods; default: 1. In the decode pool this is what `kubectl scale` and autoscalers change.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1024))]
    pub replicas: i32,
    /// What the pods have besides engine and agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// The GPUs of every pod; default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// The RDMA network card of every pod; default: none, so TCP carries everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<Rdma>,
}

const fn one() -> i32 {
    1
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            replicas: one(),
            template: None,
            gpus: None,
            rdma: None,
        }
    }
}

/// The pool that computes prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prefill {
    /// What both pools have.
    #[serde(flatten)]
    pub pool: Pool,
}

/// The pool that answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decode {
    /// What both pools have.
    #[serde(flatten)]
    pub pool: Pool,
    /// Let the operator change `replicas`; default: it doesn't, and `kubectl scale`, an HPA or KEDA may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
}
