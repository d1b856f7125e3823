//! The one place of this crate that reads a clock: everything below it is handed a [`Timestamp`].

use std::time::Instant;

use lynx_units::Timestamp;

/// A monotonic clock with an origin of its own. Copies share the origin, so their timestamps can be compared; those of
/// two separately started clocks can't.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    slowness: u32,
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
            slowness: 1,
        }
    }

    /// The same, so many times slower: every limit of the protocol lasts so much longer, for tests on machines that have no time for
    /// them.
    pub fn slowed(self, times: u32) -> Self {
        let slowness = self.slowness.saturating_mul(times.max(1));
        Self { slowness, ..self }
    }

    /// Now, on this clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "a driver is where time enters: every other module takes `now`"
    )]
    pub fn now(self) -> Timestamp {
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        Timestamp::from_origin(elapsed / self.slowness)
    }

    /// The instant of `moment` on this clock, for timers that want one. [`Timestamp::NEVER`] and other moments that an
    /// [`Instant`] can't hold become about thirty years from the origin.
    pub fn instant_of(self, moment: Timestamp) -> Instant {
        const FAR: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 86_400);
        self.origin + moment.since_origin().saturating_mul(self.slowness).min(FAR)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_slowed_clock_comes_to_a_moment_when_its_instant_is_there() {
        let clock = Clock::start();
        let slowed = clock.slowed(5).slowed(2);
        let moment = Timestamp::from_origin(Duration::from_nanos(1_234_567));
        let [sooner, later] = [clock, slowed].map(|it| it.instant_of(moment) - it.origin);
        assert_eq!(later, sooner * 10);
        // So long after the origin both are there.
        assert!(slowed.now() <= clock.now());
        assert_eq!(later / slowed.slowness, moment.since_origin());
        let never = slowed.instant_of(Timestamp::NEVER);
        assert_eq!(never, clock.instant_of(Timestamp::NEVER));
    }
}
