//! When a packet leaves a link of a given rate.

use lynx_units::{BitRate, Bytes, Timestamp};

/// The departure times of packets on a serial link. Time is an argument.
///
/// Not a token bucket: a bucket lets a burst through after a pause, a cable doesn't. A packet departs
/// `max(arrival, departure of the one before) + length / rate`; fractions of a nanosecond are carried over, so that the
/// mean rate is exact however small the packets are.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenClock {
    free_at: Timestamp,
    /// What is left of the last division, in units of 1 ns / `rate`.
    remainder: u64,
}

impl TokenClock {
    /// The moment at which the last bit of a packet that is ready at `arrival` has left. `None` where the rate is zero:
    /// it never leaves, and the clock is as before.
    pub fn depart(
        &mut self,
        arrival: Timestamp,
        length: Bytes,
        rate: BitRate,
    ) -> Option<Timestamp> {
        let rate = rate.bits_per_second();
        if rate == 0 {
            return None;
        }
        if arrival > self.free_at {
            self.free_at = arrival;
            self.remainder = 0;
        }
        let work = u128::from(length.bits()) * 1_000_000_000 + u128::from(self.remainder.min(rate));
        let nanos = u64::try_from(work / u128::from(rate)).unwrap_or(u64::MAX);
        // A remainder is less than its divisor, which is a u64.
        self.remainder = u64::try_from(work % u128::from(rate)).unwrap_or(0);
        self.free_at += std::time::Duration::from_nanos(nanos);
        Some(self.free_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_micros(micros))
    }

    #[test]
    fn the_mean_rate_is_exact_over_many_small_packets() {
        // 3 bytes at 7 Mbit/s are 3428.57 ns: rounding each would be off by 0.017 %.
        let rate = BitRate::from_megabits_per_second(7);
        let mut clock = TokenClock::default();
        let mut last = Timestamp::ORIGIN;
        for _ in 0..1_000_000 {
            last = clock.depart(at(0), Bytes::new(3), rate).unwrap();
        }
        let exact = rate.time_for(Bytes::new(3_000_000)).unwrap();
        assert_eq!(last.since_origin(), exact);
    }

    #[test]
    fn a_pause_buys_no_burst() {
        let rate = BitRate::from_megabits_per_second(8);
        let mut clock = TokenClock::default();
        assert_eq!(clock.depart(at(0), Bytes::new(100), rate), Some(at(100)));
        assert_eq!(
            clock.depart(at(5000), Bytes::new(100), rate),
            Some(at(5100))
        );
        assert_eq!(
            clock.depart(at(5000), Bytes::new(100), rate),
            Some(at(5200))
        );
    }

    #[test]
    fn a_new_rate_counts_from_the_next_packet_and_zero_stops_the_link() {
        let mut clock = TokenClock::default();
        let fast = BitRate::from_megabits_per_second(8);
        let slow = BitRate::from_megabits_per_second(1);
        assert_eq!(clock.depart(at(0), Bytes::new(1000), fast), Some(at(1000)));
        assert_eq!(clock.depart(at(0), Bytes::new(1000), slow), Some(at(9000)));
        assert_eq!(clock.depart(at(0), Bytes::new(1000), BitRate::ZERO), None);
        assert_eq!(
            clock.depart(at(0), Bytes::new(1000), fast),
            Some(at(10_000))
        );
    }
}
