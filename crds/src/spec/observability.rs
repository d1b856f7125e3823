//! Where traces and metrics go.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Traces and metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observability {
    /// Where spans go; default: where the operator's chart says, which may be nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Otlp>,
    /// Metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// Where spans go, and how many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Otlp {
    /// The URL of an OTLP receiver (gRPC), such as `http://collector.tracing:4317`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new("self.startsWith('http://') || self.startsWith('https://')")
        .message("write the receiver as a URL, such as http://collector.tracing:4317"))]
    pub endpoint: String,
    /// How many of a hundred requests that come without a trace of their own are traced; default: 100. A request whose
    /// caller traces is traced.
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 100))]
    pub sample_percent: u8,
}

const fn all() -> u8 {
    100
}

/// Metrics of the agents, in Prometheus' format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Make a PodMonitor (monitoring.coreos.com) for the agents; default: false.
    #[serde(default)]
    pub pod_monitor: bool,
}
