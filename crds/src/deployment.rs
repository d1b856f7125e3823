//! The object itself.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each public struct inside of a function"
)]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::spec::{Decode, Engine, Model, Observability, Prefill, Rollout, Topology, Transfer};
use crate::status::LynxDeploymentStatus;

/// One model, served by a pool of prefill pods and a pool of decode pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "lynx.dev",
    version = "v1alpha1",
    kind = "LynxDeployment",
    plural = "lynxdeployments",
    singular = "lynxdeployment",
    shortname = "lynx",
    category = "all",
    namespaced,
    status = "LynxDeploymentStatus",
    derive = "PartialEq",
    cel,
    doc = "One model, served by a pool of prefill pods and a pool of decode pods: prefill pods compute prompts and send \
           their KV caches most significant bits first, decode pods answer.",
    scale(
        spec_replicas_path = ".spec.decode.replicas",
        status_replicas_path = ".status.decode.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].status",
        description = "Whether requests are answered."),
    printcolumn(name = "Prefill", type_ = "integer", json_path = ".status.prefill.ready",
        description = "Prefill pods that are ready."),
    printcolumn(name = "Decode", type_ = "integer", json_path = ".status.decode.ready",
        description = "Decode pods that are ready."),
    printcolumn(name = "Anchor", type_ = "string", json_path = ".status.anchor.bits",
        description = "The anchor's mean width in bits."),
    printcolumn(name = "Link", type_ = "string", json_path = ".status.link.summary",
        description = "What the slowest link carries, and by what."),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].reason",
        description = "Why it is ready or not."),
    printcolumn(name = "Scaling", type_ = "string", json_path = ".status.scaling.reason", priority = 1,
        description = "Why the pools have as many pods as they have, where they are autoscaled."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 40")
        .message("the name is too long: 40 characters at most, since pods and services get longer names made from it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name must start with a lower-case letter and have only lower-case letters, digits and dashes, since services are named after it"),
)]
#[x_kube(
    validation = Rule::new("self.transfer.transport != 'RDMA' || (has(self.prefill.rdma) && has(self.decode.rdma))")
        .message("transfer.transport RDMA needs prefill.rdma and decode.rdma: say where the network cards come from, or use Auto or TCP"),
    validation = Rule::new(
        "self.transfer.split != 'Agent' || !(has(self.prefill.gpus) && has(self.prefill.gpus.resourceName) || has(self.decode.gpus) && has(self.decode.gpus.resourceName))"
    ).message("a device plugin would give engine and agent different GPUs: use transfer.split Engine, or gpus.resourceClaimTemplate"),
    validation = Rule::new("self.transfer.transport == 'TCP' || has(self.prefill.rdma) == has(self.decode.rdma)")
        .message("prefill.rdma and decode.rdma go together: with one of them alone TCP would carry everything, so give both, or set transfer.transport TCP"),
    validation = Rule::new("[has(self.prefill.gpus) && has(self.prefill.gpus.resourceName) ? self.prefill.gpus.count : 64, has(self.decode.gpus) && has(self.decode.gpus.resourceName) ? self.decode.gpus.count : 64].all(n, n >= self.engine.tensorParallelSize)")
        .message("engine.tensorParallelSize is more than the GPUs of a pod: raise gpus.count in both pools"),
    validation = Rule::new("self.engine.type != 'Embedded' || !(has(self.prefill.gpus) || has(self.decode.gpus))")
        .message("the embedded engine runs on CPUs: leave out gpus, or use engine.type VLLM"),
    validation = Rule::new("!has(self.decode.autoscaling) || !has(self.decode.autoscaling.gpuBudget) || has(self.prefill.gpus) || has(self.decode.gpus)")
        .message("autoscaling.gpuBudget counts GPUs, and no pod has any: give the pools gpus, or leave it out"),
    validation = Rule::new(
        "!has(self.decode.autoscaling) || !has(self.decode.autoscaling.gpuBudget) || self.decode.autoscaling.gpuBudget >= \
         (has(self.prefill.gpus) ? (has(self.prefill.gpus.resourceName) ? self.prefill.gpus.count : self.engine.tensorParallelSize) : 0) \
         * (has(self.decode.autoscaling.prefill) ? self.decode.autoscaling.prefill.minReplicas : self.prefill.replicas) \
         + (has(self.decode.gpus) ? (has(self.decode.gpus.resourceName) ? self.decode.gpus.count : self.engine.tensorParallelSize) : 0) \
         * self.decode.autoscaling.minReplicas"
    ).message("autoscaling.gpuBudget is less than the fewest pods of both pools take: raise it, or lower minReplicas"),
    validation = Rule::new("self.engine.type != 'Embedded' || !has(self.model.source.huggingFace)")
        .message("the embedded engine downloads nothing: give it model.source.hostPath, pvc or image"),
)]
pub struct LynxDeploymentSpec {
    /// The model.
    pub model: Model,
    /// The engine.
    pub engine: Engine,
    /// The pool that computes prompts.
    #[serde(default)]
    pub prefill: Prefill,
    /// The pool that answers.
    #[serde(default)]
    pub decode: Decode,
    /// How KV caches travel between the pools.
    #[serde(default)]
    pub transfer: Transfer,
    /// Whether pairs keep to one rack, rail or zone.
    #[serde(default)]
    pub topology: Topology,
    /// How pods are replaced by newer ones.
    #[serde(default)]
    pub rollout: Rollout,
    /// Where traces and metrics go.
    #[serde(default)]
    pub observability: Observability,
}
