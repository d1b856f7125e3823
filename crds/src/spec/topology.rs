//! Who should be near whom.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether pairs of prefill and decode pods keep to one rack, rail or zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.mode == 'None' || has(self.nodeLabel)")
    .message("topology.nodeLabel is needed: the node label whose value tells the places apart, such as topology.kubernetes.io/rack"))]
pub struct Topology {
    /// `Required`: only pods of one place pair. `Preferred`: pods of one place come first. `None`: places don't matter
    /// (the default).
    #[serde(default)]
    pub mode: TopologyMode,
    /// The node label whose value names a place, such as `topology.kubernetes.io/rack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')")
        .message("write the key of a node label, such as topology.kubernetes.io/rack"))]
    pub node_label: Option<String>,
}

/// How much places matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopologyMode {
    /// Only pods of one place pair.
    Required,
    /// Pods of one place come first.
    Preferred,
    /// Places don't matter.
    #[default]
    None,
}
