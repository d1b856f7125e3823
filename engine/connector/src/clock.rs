//! The process's clocks: a monotonic one for the engine, and the world's for what others are told.
//!
//! The two are read together, and a moment near another is told by the monotonic one: a world's clock that is set while a
//! step runs then moves the step, and never makes it end before it began.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place where this process reads a clock"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lynx_units::Timestamp;

/// The process's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

/// One moment, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// What the engine is told.
    pub(crate) engine: Timestamp,
    /// Nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
}

impl Clock {
    /// A clock whose origin is now.
    pub(crate) fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Moment {
            engine: self.monotonic(),
            unix_ns: nanos(unix),
        }
    }

    /// Now, where only the time since another moment matters.
    pub(crate) fn monotonic(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }
}

impl Moment {
    /// Another moment, not before this one.
    pub(crate) fn and(self, engine: Timestamp) -> Self {
        Self {
            engine,
            unix_ns: self.unix_ns.saturating_add(nanos(engine - self.engine)),
        }
    }

    /// When the engine's clock will show what the world's shows at `unix_ns`; now, if that has passed.
    pub(crate) fn engine_at(self, unix_ns: u64) -> Timestamp {
        let ahead = unix_ns.saturating_sub(self.unix_ns);
        self.engine + Duration::from_nanos(ahead)
    }

    /// The moment as the standard library has it.
    pub(crate) fn system(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.unix_ns)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_tell_the_same_times_between_moments() {
        let start = Moment {
            engine: Timestamp::from_origin(Duration::from_secs(5)),
            unix_ns: 1_000,
        };
        let later = start.and(start.engine + Duration::from_nanos(70));
        assert_eq!(later.unix_ns, 1_070);
        assert_eq!(start.engine_at(1_070), later.engine);
        assert_eq!(start.engine_at(10), start.engine);
    }
}
