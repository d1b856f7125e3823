//! Whether both connections are alive.
//!
//! A reset may never come: a cut cable is silence. So each connection says something every
//! [`HEARTBEAT_INTERVAL`], and one that has said nothing for [`SILENCE_LIMIT`] is dead. It has its own clock, apart from
//! the flow of data, because a link without data must be noticed too.

use lynx_units::{Priority, Timestamp};

use crate::limits::{HEARTBEAT_INTERVAL, SILENCE_LIMIT};

/// When each connection was last heard, and when it has to speak.
#[derive(Debug)]
pub(crate) struct Liveness {
    heard: [Timestamp; 2],
    next_beat: [Timestamp; 2],
    beat_due: [bool; 2],
}

impl Liveness {
    /// Both connections were heard at `now`, and speak at once, so that the round trip is known early.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            heard: [now; 2],
            next_beat: [now + HEARTBEAT_INTERVAL; 2],
            beat_due: [true; 2],
        }
    }

    /// Bytes came.
    pub(crate) fn on_heard(&mut self, on: Priority, now: Timestamp) {
        self.heard[on.index()] = now;
    }

    /// Time has passed: heartbeats may be due. Gives the connection that has been silent for too long.
    pub(crate) fn on_timeout(&mut self, now: Timestamp) -> Option<Priority> {
        for on in Priority::ALL {
            if self.next_beat[on.index()] <= now {
                self.next_beat[on.index()] = now + HEARTBEAT_INTERVAL;
                self.beat_due[on.index()] = true;
            }
        }
        Priority::ALL
            .into_iter()
            .find(|on| self.heard[on.index()] + SILENCE_LIMIT <= now)
    }

    /// Whether a connection has to speak now; asking takes it as done.
    pub(crate) fn take_beat(&mut self, on: Priority) -> bool {
        core::mem::take(&mut self.beat_due[on.index()])
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do. Always in the future of the last one, also where a
    /// heartbeat can't be written, so that a stuck connection does not make its driver spin.
    pub(crate) fn next(&self) -> Timestamp {
        let silence = self.heard.map(|heard| heard + SILENCE_LIMIT);
        let [first, second] = self.next_beat;
        silence.into_iter().fold(first.min(second), Timestamp::min)
    }
}

#[cfg(test)]
mod tests;
