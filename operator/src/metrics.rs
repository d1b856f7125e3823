//! Figures about this process, in Prometheus' format.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::StatusCode;
use lynx_metrics::{Kind, Metric, operator};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{self, Registry, Unit};

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

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    verb: &'static str,
    code: String,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

/// Histograms of one metric.
type Durations = Family<Verb, Histogram, fn() -> Histogram>;

/// The figures.
pub struct Metrics {
    registry: Registry,
    duration: Histogram,
    reconciles: Counter,
    errors: Family<Reason, Counter>,
    applied: Family<ObjectKind, Counter>,
    statuses: Counter,
    requests: Family<Asked, Counter>,
    request_duration: Durations,
    watches_failed: Family<ObjectKind, Counter>,
    certificates: Family<Deployment, Gauge>,
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

impl Deployment {
    fn new(namespace: &str, deployment: &str) -> Self {
        Self {
            namespace: namespace.into(),
            deployment: deployment.into(),
        }
    }
}

fn request_duration() -> Histogram {
    Histogram::new(bounds(&operator::API_DURATION).iter().copied())
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            duration: Histogram::new(bounds(&operator::DURATION).iter().copied()),
            reconciles: Counter::default(),
            errors: Family::default(),
            applied: Family::default(),
            statuses: Counter::default(),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(request_duration),
            watches_failed: Family::default(),
            certificates: Family::default(),
            leading: Gauge::default(),
            agents: Gauge::default(),
            anchor: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        self.put(&operator::DURATION, self.duration.clone());
        self.put(&operator::RECONCILES, self.reconciles.clone());
        self.put(&operator::ERRORS, self.errors.clone());
        self.put(&operator::APPLIED, self.applied.clone());
        self.put(&operator::STATUSES, self.statuses.clone());
        self.put(&operator::API_REQUESTS, self.requests.clone());
        self.put(&operator::API_DURATION, self.request_duration.clone());
        self.put(&operator::WATCHES_FAILED, self.watches_failed.clone());
        self.put(&operator::CERTIFICATE_EXPIRES, self.certificates.clone());
        self.put(&operator::LEADING, self.leading.clone());
        self.put(&operator::AGENTS, self.agents.clone());
        self.put(&operator::ANCHOR_WIDTH, self.anchor.clone());
    }

    fn put(&mut self, metric: &Metric, figures: impl registry::Metric) {
        let (name, help) = (metric.stem(), metric.help);
        match metric.unit.suffix() {
            Some(unit) => {
                let unit = Unit::Other(unit.to_owned());
                self.registry.register_with_unit(name, help, unit, figures);
            }
            None => self.registry.register(name, help, figures),
        }
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

    /// The API server answered, or didn't.
    pub fn requested(&self, verb: &'static str, code: Option<StatusCode>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.as_str().to_owned());
        self.requests.get_or_create(&Asked { verb, code }).inc();
        let duration = self.request_duration.get_or_create(&Verb { verb });
        duration.observe(took.as_secs_f64());
    }

    /// A watch broke.
    pub fn watch_failed(&self, kind: &str) {
        let label = ObjectKind { kind: kind.into() };
        self.watches_failed.get_or_create(&label).inc();
    }

    /// When the certificate of a deployment's agents ends, in seconds since 1970.
    pub fn certificate(&self, namespace: &str, deployment: &str, until: i64) {
        let label = Deployment::new(namespace, deployment);
        self.certificates.get_or_create(&label).set(until);
    }

    /// Whether this replica leads, and how many agents it has.
    pub fn present(&self, leading: bool, agents: usize) {
        self.leading.set(i64::from(leading));
        self.agents.set(i64::try_from(agents).unwrap_or(i64::MAX));
    }

    /// The width that a deployment has now.
    pub fn anchor(&self, namespace: &str, deployment: &str, bits: f64) {
        let label = Deployment::new(namespace, deployment);
        self.anchor.get_or_create(&label).set(bits);
    }

    /// There is no such deployment any more.
    pub fn forget(&self, namespace: &str, deployment: &str) {
        let label = Deployment::new(namespace, deployment);
        self.anchor.remove(&label);
        self.certificates.remove(&label);
    }

    /// All of it as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        encode(&mut text, &self.registry).ok();
        text
    }
}

/// A histogram's buckets.
const fn bounds(metric: &Metric) -> &'static [f64] {
    match metric.kind {
        Kind::Histogram(bounds) => bounds,
        Kind::Counter | Kind::Gauge | Kind::Info => &[],
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

    /// The figure of this series.
    fn figure(text: &str, series: &str) -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(series))?;
        line.trim().parse().ok()
    }

    #[test]
    fn whatever_happens_moves_the_metric_that_is_documented_for_it() {
        let metrics = Metrics::new();
        metrics.reconciled(Duration::from_millis(20), Some("NameTaken"));
        metrics.applied("Service");
        metrics.status_written();
        let took = Duration::from_millis(3);
        metrics.requested("apply", Some(StatusCode::CONFLICT), took);
        metrics.watch_failed("Pod");
        metrics.certificate("team", "smol", 1_800_000_000);
        metrics.present(true, 3);
        metrics.anchor("team", "smol", 3.5);
        let text = metrics.text();
        let moved = [
            (&operator::DURATION, "_count", 1.0),
            (&operator::RECONCILES, "", 1.0),
            (&operator::ERRORS, "{reason=\"NameTaken\"}", 1.0),
            (&operator::APPLIED, "{kind=\"Service\"}", 1.0),
            (&operator::STATUSES, "", 1.0),
            (
                &operator::API_REQUESTS,
                "{verb=\"apply\",code=\"409\"}",
                1.0,
            ),
            (&operator::API_DURATION, "_count{verb=\"apply\"}", 1.0),
            (&operator::WATCHES_FAILED, "{kind=\"Pod\"}", 1.0),
            (
                &operator::CERTIFICATE_EXPIRES,
                "{namespace=\"team\",deployment=\"smol\"}",
                1_800_000_000.0,
            ),
            (&operator::LEADING, "", 1.0),
            (&operator::AGENTS, "", 3.0),
            (
                &operator::ANCHOR_WIDTH,
                "{namespace=\"team\",deployment=\"smol\"}",
                3.5,
            ),
        ];
        for (metric, series, value) in moved {
            let series = format!("{}{series}", metric.name);
            assert_eq!(figure(&text, &series), Some(value), "{series}: {text}");
        }
        let documented = operator::GROUPS.iter().flat_map(|group| group.metrics);
        for metric in documented {
            let is_moved = moved.iter().any(|(moved, ..)| *moved == metric);
            assert!(is_moved, "nothing moves {}", metric.name);
        }
    }

    #[test]
    fn a_deployment_that_is_gone_has_no_figures() {
        let metrics = Metrics::new();
        metrics.anchor("team", "smol", 3.5);
        metrics.forget("team", "smol");
        assert!(!metrics.text().contains("smol"));
    }
}
