//! What the operator says about itself.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Every series of `/metrics`, by its name with labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(BTreeMap<String, f64>);

const DURATION: &str = "lynx_operator_reconcile_duration_seconds_bucket{";
const API_DURATION: &str = "lynx_operator_api_request_duration_seconds_bucket{";
const REQUESTS: &str = "lynx_operator_api_requests_total";

impl Figures {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(series.collect())
    }

    /// What was counted after `before`; gauges as they are.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let counts = |name: &str| {
            ["_total", "_bucket", "_count", "_sum"]
                .iter()
                .any(|suffix| name.split('{').next().unwrap_or(name).ends_with(suffix))
        };
        let series = self.0.iter().map(|(name, value)| {
            let earlier = before.0.get(name).filter(|_| counts(name));
            (name.clone(), value - earlier.copied().unwrap_or(0.0))
        });
        Self(series.collect())
    }

    pub(crate) fn gauge(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    fn sum(&self, starts: &str) -> f64 {
        let series = self.0.iter().filter(|(name, _)| name.starts_with(starts));
        series.fold(0.0, |sum, (_, value)| sum + value)
    }

    /// Of a histogram's series with `label` in them, all together, by linear interpolation in the bucket, as Prometheus does
    /// it; in milliseconds.
    fn quantile(&self, histogram: &str, label: &str, share: f64) -> f64 {
        let mut sums: Vec<(f64, f64)> = Vec::new();
        for (name, count) in &self.0 {
            let labels = name.strip_prefix(histogram);
            let Some(labels) = labels.filter(|labels| labels.contains(label)) else {
                continue;
            };
            let bound = labels.split("le=\"").nth(1).unwrap_or_default();
            let bound = bound.split('"').next().unwrap_or_default();
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            match sums.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += count,
                None => sums.push((bound, *count)),
            }
        }
        let mut buckets = sums;
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let wanted = share * buckets.last().map_or(0.0, |last| last.1);
        let mut below = (0.0, 0.0);
        for bucket in buckets {
            if bucket.1 >= wanted && bucket.1 > below.1 {
                if bucket.0.is_infinite() {
                    return below.0 * 1e3;
                }
                let within = (wanted - below.1) / (bucket.1 - below.1);
                return (below.0 + (bucket.0 - below.0) * within) * 1e3;
            }
            below = bucket;
        }
        0.0
    }

    /// What is worth reporting.
    pub(crate) fn row(&self) -> Value {
        let looks = self.sum("lynx_operator_reconciles_total");
        let by_verb: BTreeMap<_, _> = [
            "get", "list", "watch", "create", "update", "apply", "patch", "delete",
        ]
        .into_iter()
        .map(|verb| (verb, self.sum(&format!("{REQUESTS}{{verb=\"{verb}\""))))
        .filter(|(_, count)| *count > 0.0)
        .collect();
        let objects = self.sum("lynx_operator_objects_applied_total");
        let statuses = self.sum("lynx_operator_statuses_written_total");
        json!({
            "reconciles": looks,
            "reconcile_p50_ms": self.quantile(DURATION, "", 0.5),
            "reconcile_p99_ms": self.quantile(DURATION, "", 0.99),
            "apply_request_p50_ms": self.quantile(API_DURATION, "verb=\"apply\"", 0.5),
            "apply_request_p99_ms": self.quantile(API_DURATION, "verb=\"apply\"", 0.99),
            "reconcile_errors": self.sum("lynx_operator_reconcile_errors_total"),
            "requests": by_verb,
            "requests_per_reconcile": self.sum(REQUESTS) / looks.max(1.0),
            "objects_written": objects,
            "statuses_written": statuses,
            "watch_failures": self.sum("lynx_operator_watch_failures_total"),
        })
    }
}
