//! The one place of this crate that reads the wall clock.
//!
//! Contracts carry moments as nanoseconds since the Unix epoch, because they go from machine to machine. Deadlines on links
//! and durations are told by [`lynx_transport::Clock`], which never goes back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, in nanoseconds since the Unix epoch: good until the year 2554.
#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock enters here: everything else is handed a moment"
)]
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// How long it is from `now_ns` to `moment_ns`; nothing where that has passed.
pub fn until(moment_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(moment_ns.saturating_sub(now_ns))
}

/// The moment for those who want the system's type, such as spans.
pub fn system_time(moment_ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(moment_ns)
}
