//! The process's clocks: the only place of this crate that reads them.

use std::time::{Duration, Instant};

use k8s_openapi::jiff;
use lynx_units::Timestamp;

/// A monotonic clock that began when the process did.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[expect(clippy::disallowed_methods, reason = "the edge where time is read")]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// Now, as other machines tell time: in whole seconds, as API objects have it, so that what was written equals what
    /// comes back.
    pub fn wall(&self) -> jiff::Timestamp {
        let now = jiff::Timestamp::now();
        jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}

/// How long until `seconds` since 1970; nothing where that is past.
pub(crate) fn until(seconds: i64, now: jiff::Timestamp) -> Duration {
    u64::try_from(seconds - now.as_second()).map_or(Duration::ZERO, Duration::from_secs)
}
