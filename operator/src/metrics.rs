//! Figures about this process, in Prometheus' format.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds; a reconcile is a handful of requests.
const BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Why a reconcile failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// What was applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectKind {
    kind: String,
}

/// The figures.
pub struct Metrics {
    registry: Registry,
    duration: Histogram,
    reconciles: Counter,
    errors: Family<Reason, Counter>,
    applied: Family<ObjectKind, Counter>,
    statuses: Counter,
    leading: Gauge,
    agents: Gauge,
    anchor: Family<Deployment, Gauge<f64, AtomicU64>>,
}

/// Which deployment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deployment {
    namespace: String,
    deployment: String,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("lynx_operator"),
            duration: Histogram::new(BUCKETS),
            reconciles: Counter::default(),
            errors: Family::default(),
            applied: Family::default(),
            statuses: Counter::default(),
            leading: Gauge::default(),
            agents: Gauge::default(),
            anchor: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "reconcile_duration_seconds",
            "How long a look at a deployment takes",
            self.duration.clone(),
        );
        registry.register(
            "reconciles",
            "Looks at a deployment",
            self.reconciles.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Looks that failed, by reason",
            self.errors.clone(),
        );
        registry.register(
            "objects_applied",
            "Objects that were written, by kind",
            self.applied.clone(),
        );
        registry.register(
            "statuses_written",
            "Statuses that were written",
            self.statuses.clone(),
        );
        registry.register(
            "leading",
            "1 where this replica leads",
            self.leading.clone(),
        );
        registry.register("agents", "Agents that have joined", self.agents.clone());
        registry.register(
            "anchor_bits",
            "The anchor's mean width, by deployment",
            self.anchor.clone(),
        );
    }

    /// A reconcile is over; with the reason where it failed.
    pub fn reconciled(&self, took: Duration, failed: Option<&'static str>) {
        self.duration.observe(took.as_secs_f64());
        self.reconciles.inc();
        if let Some(reason) = failed {
            self.errors.get_or_create(&Reason { reason }).inc();
        }
    }

    /// An object was written.
    pub fn applied(&self, kind: &str) {
        let label = ObjectKind { kind: kind.into() };
        self.applied.get_or_create(&label).inc();
    }

    /// A status was written.
    pub fn status_written(&self) {
        self.statuses.inc();
    }

    /// How many objects and statuses were written so far.
    pub fn writes(&self) -> u64 {
        let kinds = [
            "Deployment",
            "ConfigMap",
            "Service",
            "ServiceAccount",
            "NetworkPolicy",
            "PodDisruptionBudget",
        ];
        let objects: u64 = kinds
            .iter()
            .map(|kind| {
                let label = ObjectKind {
                    kind: (*kind).into(),
                };
                self.applied.get_or_create(&label).get()
            })
            .sum();
        objects + self.statuses.get()
    }

    /// Whether this replica leads, and how many agents it has.
    pub fn present(&self, leading: bool, agents: usize) {
        self.leading.set(i64::from(leading));
        self.agents.set(i64::try_from(agents).unwrap_or(i64::MAX));
    }

    /// The width that a deployment has now.
    pub fn anchor(&self, namespace: &str, deployment: &str, bits: f64) {
        let label = Deployment {
            namespace: namespace.into(),
            deployment: deployment.into(),
        };
        self.anchor.get_or_create(&label).set(bits);
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        encode(&mut text, &self.registry).ok();
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_with_their_labels() {
        let metrics = Metrics::new();
        metrics.reconciled(Duration::from_millis(20), Some("NameTaken"));
        metrics.applied("Service");
        metrics.status_written();
        metrics.present(true, 3);
        let text = metrics.text();
        for line in [
            "lynx_operator_reconcile_errors_total{reason=\"NameTaken\"} 1",
            "lynx_operator_objects_applied_total{kind=\"Service\"} 1",
            "lynx_operator_leading 1",
            "lynx_operator_agents 3",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(metrics.writes(), 2);
    }
}
