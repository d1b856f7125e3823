//! The machine's monotonic clock.

use core::time::Duration;

use lynx_units::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Now, since the machine's start: the same clock in every process of one machine, so that the demo's two nodes and their
/// parent can put what happened on one time axis. Nodes on different machines share no clock, and send no moments.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::from_origin(Duration::new(seconds, nanos))
}

/// Seconds from `start` to `moment`.
pub fn seconds_between(start: Timestamp, moment: Timestamp) -> f64 {
    (moment - start).as_secs_f64()
}
