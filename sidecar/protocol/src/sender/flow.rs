//! Which bytes may go now, and what is learnt of those that went.

use core::time::Duration;

use lynx_units::{Bytes, Priority, Timestamp, TransferId};

use super::Sender;
use crate::lifecycle::SendingInput;
use crate::scheduler::{Piece, Readiness};
use crate::wire::{Ack, ChunkHeader};
use crate::{Code, Extent, Reason};

impl Sender {
    /// Which priority may go.
    pub(super) fn may_send(&self, on: Priority, now: Timestamp) -> bool {
        let anchor = self
            .scheduler
            .readiness(Priority::Anchor, self.credit(Priority::Anchor));
        match (on, anchor) {
            // An anchor goes as soon as its connection can take it.
            (Priority::Anchor, _) => true,
            // A residual never goes before an anchor that can go.
            (Priority::Residual, Readiness::Ready) => false,
            // Otherwise it may fill the wire, but build no queue in front of the next anchor. Anchors that the kernel
            // still holds count as well: sharing the path would slow them down.
            (Priority::Residual, Readiness::Idle | Readiness::Blocked) => {
                !self.hold.holds(now) && self.in_flight() < self.estimator.bulk_window()
            }
        }
    }

    /// What the receiver still allows.
    pub(super) fn credit(&self, on: Priority) -> Bytes {
        self.limit[on.index()] - self.stats.sent[on.index()]
    }

    fn sent(&self) -> Bytes {
        self.stats.sent.into_iter().sum()
    }

    pub(super) fn in_flight(&self) -> Bytes {
        self.sent() - self.stats.acknowledged.into_iter().sum()
    }

    /// Tells the estimators of both sides where the flow has a gap that is not the wire's doing.
    pub(super) fn note_idle(&mut self) {
        let ready = |on| self.scheduler.readiness(on, self.credit(on)) == Readiness::Ready;
        if !Priority::ALL.into_iter().any(ready) {
            self.estimator.on_idle(self.sent());
            self.paused = true;
        }
    }

    pub(super) fn hand_out(&mut self, on: Priority, piece: &Piece) -> ChunkHeader {
        let extent = Extent {
            transfer: piece.key.transfer,
            unit: piece.key.unit,
            segment: piece.key.segment,
            offset: piece.offset,
            len: piece.len,
        };
        self.stats.sent[on.index()] += extent.bytes();
        self.stats.chunks[on.index()] += 1;
        if piece.ends_segment() {
            self.on_segment_sent(extent.transfer);
        }
        ChunkHeader {
            epoch: self.epoch(),
            extent,
            after_pause: core::mem::take(&mut self.paused),
            segment_len: piece.whole.len,
            segment_checksum: piece.whole.checksum,
            payload_crc: 0,
        }
    }

    fn on_segment_sent(&mut self, transfer: TransferId) {
        if let Some(outgoing) = self.transfers.get_mut(&transfer) {
            outgoing.unsent = outgoing.unsent.saturating_sub(1);
            if outgoing.unsent == 0
                && let Ok(state) = outgoing.state.step(SendingInput::AllSent)
            {
                outgoing.state = state;
            }
        }
    }

    pub(super) fn on_round_trip(&mut self, time: Duration, now: Timestamp) {
        self.estimator.on_round_trip(time, self.pinged_empty, now);
        if self.pinged_empty {
            self.hold.measured();
        }
    }

    pub(super) fn on_ack(&mut self, ack: Ack, now: Timestamp) {
        let lies = ack
            .received
            .iter()
            .zip(&self.stats.sent)
            .any(|(received, sent)| received > sent);
        if lies {
            return self.break_link(Reason::new(
                Code::Protocol,
                "the receiving side acknowledged bytes that were never sent",
            ));
        }
        for (acknowledged, received) in self.stats.acknowledged.iter_mut().zip(ack.received) {
            *acknowledged = received.max(*acknowledged);
        }
        let delivered = self.stats.acknowledged.into_iter().sum();
        self.estimator.on_delivery(delivered, ack.clock, now);
    }
}
