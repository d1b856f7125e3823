//! Which model, and where its files come from.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model that both pools serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// The model's name, and what clients write as `model` unless `servedName` says otherwise.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What clients write as `model`; default: `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub served_name: Option<String>,
    /// Where the files come from: exactly one of the sources.
    pub source: Source,
}

impl Model {
    /// What clients write as `model`.
    pub fn served_name(&self) -> &str {
        self.served_name.as_deref().unwrap_or(&self.name)
    }
}

/// Where a model's files come from: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "[has(self.hostPath), has(self.pvc), has(self.image), has(self.huggingFace)].filter(x, x).size() == 1"
).message("give the model exactly one source: hostPath, pvc, image or huggingFace"))]
pub struct Source {
    /// A file or folder that every node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    /// A file or folder on a PersistentVolumeClaim of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcSource>,
    /// A file or folder in an image, mounted read-only as an image volume (Kubernetes 1.33 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
    /// A repository of huggingface.co, which the engine downloads itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face: Option<HuggingFace>,
}

/// A file or folder that every node has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPath {
    /// Its absolute path on the node, such as `/var/lib/models/tiny.gguf`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/') && !self.contains('..')")
        .message("write an absolute path of the node without `..`, such as /var/lib/models/tiny.gguf"))]
    pub path: String,
}

/// A file or folder on a PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcSource {
    /// The claim's name. Pods mount it read-only, so many can share it.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// The path inside the volume, without a leading slash; default: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !self.contains('..')")
        .message("write a path inside the volume, without a leading slash and without `..`"))]
    pub path: String,
}

/// A file or folder in an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// The image, such as `registry.example/models/tiny:1`.
    #[schemars(length(min = 1, max = 1024))]
    pub reference: String,
    /// The path inside the image, without a leading slash; default: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !self.contains('..')")
        .message("write a path inside the image, without a leading slash and without `..`"))]
    pub path: String,
    /// When the node pulls it; default: IfNotPresent.
    #[serde(default)]
    pub pull_policy: PullPolicy,
}

/// A repository of huggingface.co.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HuggingFace {
    /// The repository, such as `Qwen/Qwen2.5-0.5B-Instruct-GGUF`.
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$')")
        .message("write the repository as owner/name, such as Qwen/Qwen2.5-0.5B-Instruct-GGUF"))]
    pub repository: String,
    /// The branch, tag or commit; default: the repository's main branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision: Option<String>,
    /// One file of it, such as the one quantisation that is wanted; default: all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub file: Option<String>,
    /// A Secret of the same namespace whose key `token` holds the access token; default: none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub token_secret: Option<String>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// Where the node doesn't have it yet.
    #[default]
    IfNotPresent,
    /// Not at all: the node must have it.
    Never,
}

impl PullPolicy {
    /// As pods spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
