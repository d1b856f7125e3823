//! What the link can carry.

use core::time::Duration;

use lynx_units::{BitRate, Bytes};

use crate::limits::{CHUNK_TIME, MAX_CHUNK, MIN_CHUNK};

/// Rate and round trip of a link, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkEstimate {
    /// Windowed maximum of the delivery rate; zero where not known yet.
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
}
