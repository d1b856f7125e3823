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
    validation = Rule::new("self.type != 'Embedded' || !has(self.http)")
        .message("the embedded engine has no HTTP server: leave out engine.http"),
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
    /// The OpenAI server that the engine has of its own, which the agent hands requests on to. `VLLM` always has one; a
    /// `Custom` engine has one where this is given, even empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
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

/// An engine's own OpenAI server, inside its pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// Where it listens, on 127.0.0.1; default: 8000. `VLLM` is told so by the operator, a `Custom` engine by you.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The API key that it wants; default: none. Clients send it with their requests. Prefill agents, which ask on nobody's behalf,
    /// have it mounted. `VLLM` is given it by the operator, a `Custom` engine by you.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_secret: Option<ApiKeySecret>,
}

impl Http {
    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(HTTP_PORT)
    }
}

/// Where vLLM listens by itself.
const HTTP_PORT: u16 = 8000;

/// An API key in a Secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeySecret {
    /// The Secret's name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it; default: api-key.
    #[serde(default = "api_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn api_key() -> String {
    "api-key".into()
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
