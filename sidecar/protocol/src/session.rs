//! What both machines do alike: one epoch, signs of life, and the queue of frames to say.

use alloc::collections::VecDeque;
use alloc::format;
use core::time::Duration;

use lynx_units::{Epoch, Priority, Timestamp};

use crate::limits::{MAX_CONTROL_BACKLOG, SILENCE_LIMIT};
use crate::liveness::Liveness;
use crate::wire::{Frame, Heartbeat};
use crate::{Code, Reason};

/// One epoch of a link, seen from one side.
#[derive(Debug)]
pub(crate) struct Session {
    epoch: Epoch,
    liveness: Liveness,
    /// Frames for the anchor's connection, in order.
    control: VecDeque<Frame<'static>>,
    /// The stamp that the peer wants back.
    echo: Option<u64>,
    /// Whether a ping of the peer is answered by one of our own.
    asks_back: bool,
    /// A ping to make besides the regular ones.
    ping_due: bool,
    over: bool,
    stale_frames: u64,
}

impl Session {
    pub(crate) fn new(epoch: Epoch, now: Timestamp) -> Self {
        Self {
            epoch,
            liveness: Liveness::new(now),
            control: VecDeque::new(),
            echo: None,
            asks_back: false,
            ping_due: false,
            over: false,
            stale_frames: 0,
        }
    }

    /// The same for the side that is sent to: it pings whenever the other side does, because that side knows when the wire
    /// is empty. One of the two sides only, or no ping would be the last.
    pub(crate) fn asking_back(self) -> Self {
        Self {
            asks_back: true,
            ..self
        }
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) const fn stale_frames(&self) -> u64 {
        self.stale_frames
    }

    pub(crate) fn on_activity(&mut self, on: Priority, now: Timestamp) {
        self.liveness.on_heard(on, now);
    }

    /// Whether a frame of `epoch` is to be looked at. One of another epoch is no sign of life.
    pub(crate) fn admits(&mut self, on: Priority, epoch: Epoch, now: Timestamp) -> bool {
        if self.over {
            return false;
        }
        if epoch != self.epoch {
            self.stale_frames += 1;
            return false;
        }
        self.liveness.on_heard(on, now);
        true
    }

    /// A heartbeat came; gives the round trip where it is an answer.
    pub(crate) fn on_heartbeat(&mut self, beat: &Heartbeat, now: Timestamp) -> Option<Duration> {
        if beat.stamp != 0 {
            self.echo = Some(beat.stamp);
            self.ping_due = self.asks_back;
        }
        // A peer can echo what it likes; only a stamp that we can have made lately counts.
        let sent = beat.echo.checked_sub(1).map(Duration::from_nanos)?;
        let round_trip = now.since_origin().checked_sub(sent)?;
        (round_trip < SILENCE_LIMIT).then_some(round_trip)
    }

    /// Time has passed; gives a reason where a connection is dead.
    pub(crate) fn on_timeout(&mut self, now: Timestamp) -> Option<Reason> {
        let silent = self.liveness.on_timeout(now)?;
        Some(Reason::new(
            Code::Silent,
            &format!("the {silent:?} connection was silent for {SILENCE_LIMIT:?}"),
        ))
    }

    /// Pings with the next heartbeat, which is now.
    pub(crate) fn ping(&mut self) {
        self.ping_due = true;
    }

    /// Queues a frame; `false` where the peer has let too many pile up.
    #[must_use]
    pub(crate) fn say(&mut self, frame: Frame<'static>) -> bool {
        self.control.push_back(frame);
        self.control.len() <= MAX_CONTROL_BACKLOG
    }

    /// The next heartbeat or queued frame of a connection.
    pub(crate) fn poll(&mut self, on: Priority, now: Timestamp) -> Option<Frame<'static>> {
        if !self.over
            && let Some(beat) = self.beat(on, now)
        {
            return Some(Frame::Heartbeat(beat));
        }
        match on {
            Priority::Anchor => self.control.pop_front(),
            Priority::Residual => None,
        }
    }

    /// Only the anchor's connection measures: on the other one a heartbeat stands behind bulk.
    fn beat(&mut self, on: Priority, now: Timestamp) -> Option<Heartbeat> {
        let due = self.liveness.take_beat(on);
        if on == Priority::Residual {
            return due.then(Heartbeat::default);
        }
        let ping = core::mem::take(&mut self.ping_due) || due;
        let echo = self.echo.take();
        (ping || echo.is_some()).then(|| Heartbeat {
            stamp: if ping { stamp(now) } else { 0 },
            echo: echo.unwrap_or(0),
        })
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(crate) fn next_timeout(&self) -> Timestamp {
        self.liveness.next()
    }

    /// The link is lost: nothing more is said.
    pub(crate) fn break_off(&mut self) {
        self.over = true;
        self.control.clear();
    }

    /// The link is being closed: what is queued is still said.
    pub(crate) fn close(&mut self) {
        self.over = true;
    }
}

/// A moment as an opaque number that is never zero.
fn stamp(now: Timestamp) -> u64 {
    u64::try_from(now.since_origin().as_nanos())
        .unwrap_or(u64::MAX - 1)
        .saturating_add(1)
}

#[cfg(test)]
mod tests;
