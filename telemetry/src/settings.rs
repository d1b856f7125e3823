//! What a process says about itself, and where its spans go.

use opentelemetry::KeyValue;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How a process logs and traces. The standard variables win over it, since they are nearer to the process:
/// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`,
/// `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`, `OTEL_SDK_DISABLED`, and `RUST_LOG` for what is logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `service.name`: `lynx-agent`, `lynx-operator`, ...
    pub service: String,
    /// `service.instance.id`: the pod's name, where there is one.
    pub instance: Option<String>,
    /// Further attributes of the process: namespace, deployment, role, ...
    pub attributes: Vec<KeyValue>,
    /// The collector's gRPC endpoint, `http://host:4317`; `None` exports nothing.
    pub otlp_endpoint: Option<String>,
    /// The share of traces that are kept where no caller has decided, from 0 to 1.
    pub sampling: f64,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged, in the notation of `RUST_LOG`.
    pub log_filter: String,
}

impl Settings {
    /// Text at level `info`, nothing exported.
    pub fn new(service: &str) -> Self {
        Self {
            service: service.to_owned(),
            instance: None,
            attributes: Vec::new(),
            otlp_endpoint: None,
            sampling: 1.0,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
        }
    }
}
