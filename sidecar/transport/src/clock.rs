//! The one place of this crate that reads a clock: everything below it is handed a [`Timestamp`].

use std::time::Instant;

use lynx_units::Timestamp;

/// A monotonic clock with an origin of its own. Copies share the origin, so their timestamps can be compared; those of
/// two separately started clocks can't.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is this moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "a driver is where time enters: the clock's origin"
    )]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Now, on this clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "a driver is where time enters: every other module takes `now`"
    )]
    pub fn now(self) -> Timestamp {
        Timestamp::from_origin(Instant::now().saturating_duration_since(self.origin))
    }

    /// The instant of `moment` on this clock, for timers that want one. [`Timestamp::NEVER`] and other moments that an
    /// [`Instant`] can't hold become about thirty years from the origin.
    pub fn instant_of(self, moment: Timestamp) -> Instant {
        const FAR: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 86_400);
        self.origin + moment.since_origin().min(FAR)
    }
}
