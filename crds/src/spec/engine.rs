//! Which engine computes, and how it is started.

use k8s_openapi::api::core::v1::EnvVar;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PullPolicy;
use crate::schema::bare;

/// The engine of both pools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.type == 'Embedded' || has(self.image)")
        .message("engine.image is needed: only the embedded engine comes with the operator"),
    validation = Rule::new("self.type != 'Embedded' || self.tensorParallelSize == 1")
        .message("the embedded engine runs on one CPU: leave engine.tensorParallelSize at 1"),
    validation = Rule::new("self.type == oldSelf.type")
        .message("engine.type can't be changed: make another LynxDeployment, move the clients, delete this one"),
)]
pub struct Engine {
    /// Which engine: `Embedded` (on CPUs, for small models and for trying things out), `VLLM`, or `Custom` (anything
    /// that speaks Lynx's engine API).
    #[serde(rename = "type")]
    pub type_: EngineType,
    /// The image; default for `Embedded`: the operator's own choice. The others need one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// When the image is pulled; default: IfNotPresent.
    #[serde(default)]
    pub image_pull_policy: PullPolicy,
    /// Arguments that follow those of the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Environment variables of the engine's container, in both pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), schema_with = "bare::<Vec<EnvVar>>")]
    pub env: Vec<EnvVar>,
    /// Ports of the engine's container that something other than Lynx uses. Clients talk to the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Vec<Port>,
    /// Over how many devices of a pod the engine splits the model; default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub tensor_parallel_size: u32,
}

const fn one() -> u32 {
    1
}

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EngineType {
    /// Lynx's own, on CPUs.
    Embedded,
    /// vLLM with Lynx's connector.
    #[serde(rename = "VLLM")]
    Vllm,
    /// Any other that speaks the engine API.
    Custom,
}

/// A port of the engine's container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name, unique in the list.
    #[schemars(length(max = 15))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.matches('[a-z]')")
        .message("a port's name has lower-case letters, digits and dashes, and at least one letter"))]
    pub name: String,
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: u16,
}
