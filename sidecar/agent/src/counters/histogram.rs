//! Observations by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lynx_metrics::{Kind, Metric};

use super::Counter;

/// What a sum counts: billionths, so that a sum of times is one of nanoseconds.
const PARTS: f64 = 1e9;

/// Counts observations by the upper bounds of buckets. Why not the metrics library's: it takes a lock for each observation.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// By bucket, each without those before it; the last is for what is above every bound.
    counts: Box<[AtomicU64]>,
    sum: Counter,
}

/// What was observed up to some moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The sum.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
    /// How many there were in each bucket, by its upper bound; the last has none.
    pub buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Nothing observed yet, with the buckets of this metric; with one where it is no histogram.
    pub fn of(metric: &Metric) -> Self {
        let bounds = match metric.kind {
            Kind::Histogram(bounds) => bounds,
            Kind::Counter | Kind::Gauge | Kind::Info => &[],
        };
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: Counter::default(),
        }
    }

    /// One observation more, not below zero.
    pub fn observe(&self, value: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates: a sum of centuries"
        )]
        self.put(value, (value * PARTS) as u64);
    }

    /// One observation more, in seconds.
    pub fn observe_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.put(time.as_secs_f64(), nanos);
    }

    fn put(&self, value: f64, parts: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.add(parts);
    }

    /// The sum so far, in billionths: nanoseconds, of times.
    pub fn sum_nanos(&self) -> u64 {
        self.sum.get()
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// What was observed so far. The count is that of the buckets, whatever is observed meanwhile.
    pub fn observed(&self) -> Observed {
        let bounds = self.bounds.iter().copied().chain([f64::MAX]);
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        #[expect(clippy::cast_precision_loss, reason = "a sum for people")]
        Observed {
            sum: self.sum.get() as f64 / PARTS,
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use lynx_metrics::agent;

    use super::*;

    #[test]
    fn an_observation_is_in_the_first_bucket_that_it_is_not_above() {
        let histogram = Histogram::of(&agent::TIME_TO_ANCHOR);
        histogram.observe_time(Duration::from_millis(1));
        histogram.observe(0.0011);
        histogram.observe(61.0);
        let Observed {
            sum,
            count,
            buckets,
        } = histogram.observed();
        assert_eq!(count, 3);
        assert!((sum - 61.0021).abs() < 1e-6, "{sum}");
        let full: Vec<_> = buckets
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(full, [(0.001, 1), (0.002, 1), (f64::MAX, 1)]);
    }
}
