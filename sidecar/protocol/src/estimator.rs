//! What the link can carry.
//!
//! Delivery-rate samples feed a windowed maximum, round trips a windowed minimum, as a path's capacity shows in its best
//! moments and its length in its emptiest. Samples count only while there was something to send: a sender that waits for
//! prefill says nothing about the wire. It reads no clock, and does not pace: the sender's window does.

mod window;

use core::time::Duration;

use lynx_units::{BitRate, Bytes, Timestamp};

use crate::limits::{
    CHUNK_TIME, MAX_CHUNK, MIN_CHUNK, OFFER_HOLD, PROBE_TIME, ROUND_TRIP_AGE, SLACK_TIME,
};
use window::Best;

/// Rate and round trip of a link, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkEstimate {
    /// Windowed maximum of the delivery rate of payload, both priorities together; zero where not known yet.
    pub rate: BitRate,
    /// Windowed minimum of the round-trip time; `None` where not known yet.
    pub round_trip: Option<Duration>,
}

impl LinkEstimate {
    /// Rate times round trip: what fills the wire without a queue; zero where either is unknown.
    pub fn bandwidth_delay(&self) -> Bytes {
        self.rate.bytes_in(self.round_trip.unwrap_or_default())
    }

    /// How much a chunk should carry: [`CHUNK_TIME`] of the rate, between [`MIN_CHUNK`] and [`MAX_CHUNK`]; the smallest
    /// where the rate isn't known, because a slow link must not find out by a long wait.
    pub fn chunk(&self) -> u32 {
        let bytes = self.rate.bytes_in(CHUNK_TIME).get();
        u32::try_from(bytes)
            .unwrap_or(MAX_CHUNK)
            .clamp(MIN_CHUNK, MAX_CHUNK)
    }

    /// What the end points need on top of the bandwidth-delay product, because a chunk is acknowledged whole and threads
    /// are woken late: [`SLACK_TIME`], or two chunks of a link so slow that its chunks take longer.
    fn slack(&self) -> Bytes {
        let two_chunks = Bytes::new(2 * u64::from(self.chunk()));
        two_chunks.max(self.rate.bytes_in(SLACK_TIME))
    }
}

/// A moment in the flow of delivered bytes, on the receiving side's clock.
#[derive(Clone, Copy, Debug)]
struct Moment {
    delivered: Bytes,
    clock: Duration,
}

/// What came while there was something to send.
#[derive(Clone, Copy, Debug, Default)]
struct Flowed {
    bytes: Bytes,
    time: Duration,
    /// Acknowledgements.
    count: u32,
}

/// Makes a [`LinkEstimate`] of acknowledgements and echoes.
#[derive(Debug)]
pub(crate) struct LinkEstimator {
    rate: Best<BitRate>,
    /// Of round trips on an empty wire, as far as one is known: behind bulk, a round trip measures the queue, and a window
    /// made of that would make the queue longer.
    round_trip: Best<Duration>,
    emptied: Option<Timestamp>,
    /// Where the part of the present sample begins that has no gap, and its latest moment.
    base: Option<(Moment, Moment)>,
    /// What the present sample has from before its last gap, and when that began.
    carried: Flowed,
    carried_since: Timestamp,
    /// Acknowledgements since `base`.
    count: u32,
    /// Cumulative counts at which the flow had a gap, because there was nothing to send: the first that the interval since
    /// `base` could contain, and the latest.
    first_gap: Option<Bytes>,
    last_gap: Bytes,
    /// The best rate when it last grew by a quarter, and how many samples ago that was.
    plateau: BitRate,
    flat_samples: u32,
}

impl LinkEstimator {
    /// Shortest interval that makes a rate sample: a shorter one measures how threads are scheduled.
    const MIN_INTERVAL: Duration = Duration::from_millis(5);
    /// Fewest acknowledgements that make a rate sample. Chunks count when they are whole, so that either end of an interval
    /// is off by up to a chunk of the other connection.
    const MIN_COUNT: u32 = 16;
    /// After this long a sample that gaps keep short is given up: the link may have changed.
    const LONGEST_SAMPLE: Duration = Duration::from_secs(1);
    /// What may be in flight while nothing is known.
    const INITIAL_WINDOW: Bytes = Bytes::from_kib(128);
    /// How many samples without growth end the search for the rate.
    const FLAT: u32 = 3;

    pub(crate) fn new() -> Self {
        Self {
            rate: Best::new(Duration::from_millis(200), |a, b| a > b),
            round_trip: Best::new(Duration::from_secs(1), |a, b| a < b),
            emptied: None,
            base: None,
            carried: Flowed::default(),
            carried_since: Timestamp::ORIGIN,
            count: 0,
            first_gap: None,
            last_gap: Bytes::ZERO,
            plateau: BitRate::ZERO,
            flat_samples: 0,
        }
    }

    pub(crate) fn estimate(&self) -> LinkEstimate {
        LinkEstimate {
            rate: self.rate.get().unwrap_or_default(),
            round_trip: self.round_trip.get(),
        }
    }

    /// An echo came back after `time`; `empty` where there was no payload on the wire.
    pub(crate) fn on_round_trip(&mut self, time: Duration, empty: bool, now: Timestamp) {
        if empty {
            self.emptied = Some(now);
        }
        if empty || self.round_trip.get().is_none() {
            self.round_trip.add(time, now);
        }
    }

    /// Whether the round trip was last measured on an empty wire so long ago that the path may have changed.
    pub(crate) fn round_trip_is_old(&self, now: Timestamp) -> bool {
        self.emptied
            .is_none_or(|at| now.saturating_since(at) >= ROUND_TRIP_AGE)
    }

    /// After `sent` bytes in all there was nothing to send: what is delivered beyond them comes after a gap.
    pub(crate) fn on_idle(&mut self, sent: Bytes) {
        self.last_gap = sent;
        let base = self.base.map_or(Bytes::ZERO, |(base, _)| base.delivered);
        if self.first_gap.is_none() && sent >= base {
            self.first_gap = Some(sent);
        }
    }

    /// `delivered` bytes in all had arrived at `clock` of the receiving side.
    pub(crate) fn on_delivery(&mut self, delivered: Bytes, clock: Duration, now: Timestamp) {
        let here = Moment { delivered, clock };
        let gap = self.first_gap.is_some_and(|gap| delivered > gap);
        let Some((base, last)) = self.base.filter(|_| !gap) else {
            self.carry(now);
            return self.restart(here);
        };
        // A clock that another side says may do anything.
        let last = Moment {
            delivered,
            clock: clock.max(last.clock),
        };
        self.base = Some((base, last));
        self.count += 1;
        let flowed = self.flowed();
        let shortest = Self::MIN_INTERVAL.max(self.round_trip.get().unwrap_or_default());
        if flowed.time < shortest || flowed.count < Self::MIN_COUNT {
            return;
        }
        self.carried = Flowed::default();
        self.carried_since = now;
        self.sample(BitRate::from_delivery(flowed.bytes, flowed.time), now);
        self.restart(here);
    }

    /// All that the present sample has.
    fn flowed(&self) -> Flowed {
        let Some((base, last)) = self.base else {
            return self.carried;
        };
        Flowed {
            bytes: self.carried.bytes + (last.delivered - base.delivered),
            time: self.carried.time + last.clock.saturating_sub(base.clock),
            count: self.carried.count.saturating_add(self.count),
        }
    }

    /// Keeps what came before a gap: a prefill that publishes layer by layer never fills a whole sample without one.
    fn carry(&mut self, now: Timestamp) {
        if now.saturating_since(self.carried_since) > Self::LONGEST_SAMPLE {
            self.carried_since = now;
            self.carried = Flowed::default();
        } else {
            self.carried = self.flowed();
        }
    }

    /// How many bytes, of both priorities together, may be in flight when a residual is sent. One and a quarter of the
    /// bandwidth-delay product keeps the wire full and finds a higher rate; twice while the rate is still being found.
    pub(crate) fn bulk_window(&self) -> Bytes {
        let estimate = self.estimate();
        if estimate.rate == BitRate::ZERO {
            return Self::INITIAL_WINDOW;
        }
        let product = estimate.bandwidth_delay().get();
        let searching = self.flat_samples < Self::FLAT;
        let window = if searching {
            product.saturating_mul(2)
        } else {
            product.saturating_add(product / 4)
        };
        let window = Bytes::new(window) + estimate.slack();
        if searching {
            window.max(Self::INITIAL_WINDOW)
        } else {
            window
        }
    }

    /// How long an offer that is made now may wait for its answer: behind what may be in flight, and [`OFFER_HOLD`]. `None`
    /// on a path so long that waiting would leave the wire empty for longer than an anchor gains.
    pub(crate) fn answer_time(&self) -> Option<Duration> {
        let estimate = self.estimate();
        let near = estimate.round_trip? <= OFFER_HOLD / 2;
        let drained = estimate.rate.time_for(self.bulk_window())?;
        near.then(|| OFFER_HOLD + drained.min(PROBE_TIME))
    }

    fn restart(&mut self, base: Moment) {
        self.base = Some((base, base));
        self.count = 0;
        self.first_gap = Some(self.last_gap).filter(|&gap| gap >= base.delivered);
    }

    fn sample(&mut self, rate: BitRate, now: Timestamp) {
        self.rate.add(rate, now);
        let grown = self.plateau.bits_per_second() / 4 * 5;
        if rate.bits_per_second() > grown {
            self.plateau = rate;
            self.flat_samples = 0;
        } else {
            self.flat_samples = self.flat_samples.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
