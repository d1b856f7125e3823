//! What arrives, what was granted, and what is said about it.

use alloc::sync::Arc;
use core::time::Duration;
use lynx_units::{Bytes, Priority, Timestamp};

use super::{ReceiverConfig, ReceiverStats};
use crate::credit::{BookFull, Seat, Window, Withhold};
use crate::estimator::LinkEstimator;
use crate::wire::{Ack, ChunkHeader, Credit, Frame};
use crate::{CreditBook, LinkEstimate};

/// An anchor's credit is bounded by memory alone.
const UNBOUNDED: Bytes = Bytes::new(u64::MAX);

/// Credit and acknowledgements of one link.
#[derive(Debug)]
pub(super) struct Flow {
    seat: Seat,
    windows: [Window; 2],
    withhold: Withhold,
    /// How far residuals may run ahead, as [`raise`](Self::raise) saw it last.
    ahead: Bytes,
    estimator: LinkEstimator,
    last_chunk: Timestamp,
    ack_due: bool,
    received: [Bytes; 2],
    /// What had been received when the last ping went out.
    pinged: Bytes,
    chunks: [u64; 2],
}

impl Flow {
    pub(super) fn new(
        config: ReceiverConfig,
        book: &Arc<CreditBook>,
        now: Timestamp,
    ) -> Result<Self, BookFull> {
        let mut flow = Self {
            seat: Seat::take(book, config.window.into_iter().sum())?,
            windows: config.window.map(Window::new),
            withhold: Withhold::default(),
            estimator: LinkEstimator::new(),
            ahead: Bytes::ZERO,
            last_chunk: now,
            ack_due: false,
            received: [Bytes::ZERO; 2],
            pinged: Bytes::ZERO,
            chunks: [0; 2],
        };
        flow.raise(now);
        Ok(flow)
    }

    pub(super) fn estimate(&self) -> LinkEstimate {
        self.estimator.estimate()
    }

    /// The counts of this part of a receiver.
    pub(super) fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            received: self.received,
            chunks: self.chunks,
            granted: self.windows.each_ref().map(Window::announced),
            withheld: self.withhold.total(),
            starved: self.withhold.starved(),
            ..ReceiverStats::default()
        }
    }

    /// A ping goes out.
    pub(super) fn on_ping(&mut self) {
        self.pinged = self.received.into_iter().sum();
    }

    /// Its echo came back after `time`.
    pub(super) fn on_round_trip(&mut self, time: Duration, now: Timestamp) {
        let received: Bytes = self.received.into_iter().sum();
        self.estimator
            .on_round_trip(time, received == self.pinged, now);
    }

    /// A chunk is coming; `false` where the sender may not have sent it.
    #[must_use]
    pub(super) fn on_header(&mut self, on: Priority, bytes: Bytes) -> bool {
        self.windows[on.index()].receive(bytes)
    }

    /// A chunk's payload has been read, to its place or to nowhere.
    pub(super) fn on_payload(&mut self, on: Priority, header: &ChunkHeader, now: Timestamp) {
        let before = self.received.into_iter().sum();
        let bytes = header.extent.bytes();
        if header.after_pause {
            self.estimator.on_idle(before);
        }
        if on == Priority::Residual {
            self.seat.bulk_arrives(now);
        }
        self.last_chunk = now;
        self.ack_due = true;
        self.received[on.index()] += bytes;
        self.chunks[on.index()] += 1;
        self.estimator
            .on_delivery(before + bytes, now.since_origin(), now);
    }

    /// Nobody holds these bytes any more.
    pub(super) fn release(&mut self, on: Priority, bytes: Bytes) {
        self.windows[on.index()].release(bytes);
    }

    /// Grants what may be granted.
    pub(super) fn raise(&mut self, now: Timestamp) {
        self.ahead = self.residual_ahead(now);
        let ahead = self.ahead;
        let [anchor, residual] = &mut self.windows;
        anchor.raise(UNBOUNDED);
        if !residual.can_raise(ahead) {
            self.withhold.rest(now);
        } else if self.withhold.may_grant(self.seat.others_active(now), now) {
            residual.raise(ahead);
        }
    }

    /// When [`raise`](Self::raise) may grant more although nothing has happened.
    pub(super) fn recheck(&self) -> Option<Timestamp> {
        self.withhold.recheck()
    }

    /// Credit or an acknowledgement, where one is due.
    pub(super) fn feedback(&mut self) -> Option<Frame<'static>> {
        let ahead = [UNBOUNDED, self.ahead];
        let mut windows = self.windows.iter().zip(ahead);
        if windows.any(|(window, ahead)| window.is_due(ahead)) {
            let [anchor, residual] = &mut self.windows;
            let limit = [anchor.announce(), residual.announce()];
            return Some(Frame::Credit(Credit { limit }));
        }
        core::mem::take(&mut self.ack_due).then(|| {
            Frame::Ack(Ack {
                received: self.received,
                clock: self.last_chunk.since_origin(),
            })
        })
    }

    /// An anchor is coming, and other links give way.
    pub(super) fn anchor_arrives(&self, now: Timestamp) {
        self.seat.anchor_arrives(now);
    }

    /// No anchor is awaited any more.
    pub(super) fn no_anchor(&self) {
        self.seat.no_anchor();
    }

    /// How far residuals may run ahead of what has come: what keeps the wire full, so that what a sender still may send
    /// when another link's anchor comes is short too. Links that receive residuals at the same time share it: each has seen
    /// the wire at its best, and all their windows together would be a queue that every anchor waits in.
    fn residual_ahead(&self, now: Timestamp) -> Bytes {
        let window = self.estimator.bulk_window();
        Bytes::new((window + window).get() / self.seat.sharing(now))
    }
}
