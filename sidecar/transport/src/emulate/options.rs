//! What a link is like.

use std::time::Duration;

use lynx_units::{BitRate, Bytes};

/// A way through the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the relay's target back to whoever connected to the relay. Data takes this way where the decode side dials.
    FromTarget,
    /// From whoever connected to the relay on to its target.
    ToTarget,
}

/// What a link is like: the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Payload bits per second that pass in each direction. TCP/IP headers aren't counted. [`BitRate::ZERO`] lets
    /// nothing pass, and keeps the connections open: a silent link.
    pub rate: BitRate,
    /// How long a byte travels after it has left the queue.
    pub one_way_delay: Duration,
    /// How many bytes of each direction may wait in front of the link. Where the rate changes, the queue changes with it,
    /// so that what is in it always takes the same time, down to [`MIN_QUEUE`](Self::MIN_QUEUE).
    pub queue: Bytes,
}

impl LinkOptions {
    /// The least default queue. A shorter one would run dry between two turns of the reading task.
    pub const MIN_QUEUE: Bytes = Bytes::from_kib(32);
    /// The default queue holds what the link passes in this time: what a well-set-up switch port holds.
    pub const QUEUE_TIME: Duration = Duration::from_millis(10);

    /// A link of this rate without delay, with the default queue.
    pub fn new(rate: BitRate) -> Self {
        Self {
            rate,
            one_way_delay: Duration::ZERO,
            queue: rate.bytes_in(Self::QUEUE_TIME).max(Self::MIN_QUEUE),
        }
    }

    /// The same with a delay in each direction.
    #[must_use]
    pub fn with_delay(self, one_way_delay: Duration) -> Self {
        Self {
            one_way_delay,
            ..self
        }
    }

    /// The queue once the link has this rate.
    pub(super) fn queue_at(&self, rate: BitRate) -> Bytes {
        match self.rate.time_for(self.queue) {
            Some(time) if rate != BitRate::ZERO => {
                let least = self.queue.min(Self::MIN_QUEUE);
                rate.bytes_in(time).max(least)
            }
            _ => self.queue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_its_time_when_the_rate_changes() {
        let link = LinkOptions::new(BitRate::from_megabits_per_second(1000));
        assert_eq!(link.queue_at(link.rate), Bytes::new(1_250_000));
        let slower = BitRate::from_megabits_per_second(100);
        assert_eq!(link.queue_at(slower), Bytes::new(125_000));
        assert_eq!(
            link.queue_at(BitRate::from_megabits_per_second(1)),
            LinkOptions::MIN_QUEUE
        );
        assert_eq!(link.queue_at(BitRate::ZERO), link.queue);
        let stopped = LinkOptions::new(BitRate::ZERO);
        assert_eq!(stopped.queue_at(slower), LinkOptions::MIN_QUEUE);
    }
}
