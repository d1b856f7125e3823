//! What a pool's pods are made with.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, ResourceRequirements, Toleration, Volume, VolumeMount,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema::bare;

/// What a pool's pods have besides engine and agent. The fields are a pod's, with a pod's meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Resources of the engine's container. GPUs are in `gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,
    /// Resources of the agent's container; network cards are in `rdma`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<ResourceRequirements>")]
    pub agent_resources: Option<ResourceRequirements>,
    /// Environment variables of the engine's container in this pool; they win over `engine.env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), schema_with = "bare::<Vec<EnvVar>>")]
    pub env: Vec<EnvVar>,
    /// Volumes of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), schema_with = "bare::<Vec<Volume>>")]
    pub volumes: Vec<Volume>,
    /// Where the engine's container mounts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), schema_with = "bare::<Vec<VolumeMount>>")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods bear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), schema_with = "bare::<Vec<Toleration>>")]
    pub tolerations: Vec<Toleration>,
    /// Which nodes and neighbours the pods want.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<Affinity>")]
    pub affinity: Option<Affinity>,
    /// Annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Secrets of the same namespace with credentials for the images; default: the operator's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), schema_with = "bare::<Vec<LocalObjectReference>>")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The pods' PriorityClass; default: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// The pods' RuntimeClass; default: the node's default runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
}
