//! The best of the last samples.

use core::time::Duration;

use lynx_units::Timestamp;

const BUCKETS: usize = 10;

/// The best sample of each tenth of a window. It forgets only when a new sample comes: an idle link keeps its estimate.
#[derive(Debug)]
pub(super) struct Best<V> {
    span: Duration,
    better: fn(&V, &V) -> bool,
    buckets: [Option<V>; BUCKETS],
    /// Number of the newest bucket since the clock's origin.
    newest: u64,
}

impl<V: Copy> Best<V> {
    /// A window of `BUCKETS * span`, in which `better(a, b)` says whether `a` is to be kept rather than `b`.
    pub(super) const fn new(span: Duration, better: fn(&V, &V) -> bool) -> Self {
        Self {
            span,
            better,
            buckets: [None; BUCKETS],
            newest: 0,
        }
    }

    pub(super) fn add(&mut self, value: V, now: Timestamp) {
        let number = now.since_origin().as_nanos() / self.span.as_nanos();
        let number = u64::try_from(number).unwrap_or(u64::MAX).max(self.newest);
        for passed in (self.newest + 1..=number).rev().take(BUCKETS) {
            self.buckets[slot(passed)] = None;
        }
        self.newest = number;
        let bucket = &mut self.buckets[slot(number)];
        match bucket {
            Some(kept) if !(self.better)(&value, kept) => {}
            _ => *bucket = Some(value),
        }
    }

    pub(super) fn get(&self) -> Option<V> {
        let pick = |a: V, b: V| if (self.better)(&b, &a) { b } else { a };
        self.buckets.iter().copied().flatten().reduce(pick)
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % BUCKETS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
