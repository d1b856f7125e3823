//! A moment on somebody's monotonic clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds since an origin that its clock chose. Moments of different machines can't be compared, so none ever
/// crosses a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);
    /// A moment that never comes: an infinite deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `since_origin` after the clock's origin.
    pub fn from_origin(since_origin: Duration) -> Self {
        Self(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }

    /// How long after the clock's origin this is.
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time from `earlier` to this moment; zero where `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

/// The time between two moments; zero where the right one is later.
impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}
