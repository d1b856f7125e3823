//! Fields that are defined and validated, and that nothing acts on yet.

use std::fmt;

use crate::LynxDeploymentSpec;
use crate::spec::{Split, TlsMode};

/// A field that is set and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotActedOn {
    /// Its path in the object.
    pub path: &'static str,
    /// What happens instead.
    pub instead: &'static str,
}

impl fmt::Display for NotActedOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not acted on yet: {}", self.path, self.instead)
    }
}

struct Entry {
    field: NotActedOn,
    set: fn(&LynxDeploymentSpec) -> bool,
}

const fn entry(
    path: &'static str,
    instead: &'static str,
    set: fn(&LynxDeploymentSpec) -> bool,
) -> Entry {
    Entry {
        field: NotActedOn { path, instead },
        set,
    }
}

/// All of them. A line goes when the field gets its effect.
const ENTRIES: [Entry; 4] = [
    entry(
        "spec.model.source.huggingFace",
        "the engine must download the model itself, or have it in its image",
        |spec| spec.model.source.hugging_face.is_some(),
    ),
    entry(
        "spec.transfer.split",
        "the agent splits, in memory that it shares with the engine",
        |spec| spec.transfer.split == Split::Engine,
    ),
    entry(
        "spec.transfer.tls.issuerRef",
        "agents talk in clear text; make a Certificate yourself, and name its Secret with tls.mode Secret",
        |spec| spec.transfer.tls.mode == TlsMode::CertManager,
    ),
    entry(
        "spec.observability.metrics.podMonitor",
        "make a PodMonitor for the pods' port `metrics` yourself",
        |spec| {
            let metrics = spec.observability.metrics.as_ref();
            metrics.is_some_and(|metrics| metrics.pod_monitor)
        },
    ),
];

/// The fields that `spec` sets and that nothing acts on yet.
pub fn not_acted_on(spec: &LynxDeploymentSpec) -> Vec<NotActedOn> {
    let set = ENTRIES.iter().filter(|entry| (entry.set)(spec));
    set.map(|entry| entry.field).collect()
}
