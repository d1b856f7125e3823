//! When a process runs: a stopped one, or one that a busy machine wakes late, sees nothing in between.

use std::time::Duration;

use lynx_units::Timestamp;

/// One node's process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// From when until when it is stopped.
    pub(crate) stopped: Option<(Timestamp, Timestamp)>,
    /// It runs at multiples of this only; zero is at once.
    pub(crate) tick: Duration,
}

impl Process {
    /// The first moment from `at` on at which it runs.
    pub(crate) fn runs(&self, at: Timestamp) -> Timestamp {
        let at = self.tick_after(at);
        match self.stopped {
            Some((from, until)) if from <= at && at < until => self.tick_after(until),
            _ => at,
        }
    }

    /// Whether it runs at `now`.
    pub(crate) fn is_running(&self, now: Timestamp) -> bool {
        self.runs(now) == now
    }

    fn tick_after(&self, at: Timestamp) -> Timestamp {
        let tick = self.tick.as_nanos();
        let origin = at.since_origin();
        if tick == 0 || origin.as_nanos().is_multiple_of(tick) {
            return at;
        }
        let rest = tick - origin.as_nanos() % tick;
        at + Duration::from_nanos(u64::try_from(rest).unwrap())
    }
}
