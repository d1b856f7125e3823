//! The path of chunks through a receiver.

use alloc::string::ToString;

use lynx_units::{Bytes, Priority, Timestamp};

use super::incoming::{Misplaced, part};
use super::{Discard, Event, Placement, Receiver};
use crate::lifecycle::{Receiving, ReceivingInput};
use crate::wire::{ChunkHeader, Frame};
use crate::{Code, Reason};

impl Receiver {
    /// A chunk's header arrived on the connection for `on`; its payload has not been read yet.
    pub fn handle_chunk_header(
        &mut self,
        on: Priority,
        header: &ChunkHeader,
        now: Timestamp,
    ) -> Result<Placement, Discard> {
        if !self.session.admits(on, header.epoch, now) {
            return Err(Discard::Stale);
        }
        let bytes = header.extent.bytes();
        if !self.flow.on_header(on, bytes) {
            let reason = Reason::new(
                Code::Protocol,
                "the sending side sent more than it was granted",
            );
            self.break_link(reason, now);
            return Err(Discard::Violation);
        }
        match self.place(on, header, now) {
            Ok(first) => Ok(Placement {
                extent: header.extent,
                segment_len: header.segment_len,
                first,
            }),
            Err(discard) => {
                self.flow.on_payload(on, header, now);
                self.drop_bytes(on, bytes, now);
                Err(discard)
            }
        }
    }

    /// The payload of a chunk that had a [`Placement`] has been read; `intact` says whether it had the header's CRC32C.
    pub fn handle_chunk_done(
        &mut self,
        on: Priority,
        header: &ChunkHeader,
        intact: bool,
        now: Timestamp,
    ) {
        if !self.session.admits(on, header.epoch, now) {
            return;
        }
        let transfer = header.extent.transfer;
        let bytes = header.extent.bytes();
        self.flow.on_payload(on, header, now);
        if !intact {
            self.stats.corrupt += 1;
            self.drop_bytes(on, bytes, now);
            let reason = Reason::new(
                Code::Corrupt,
                "a chunk's payload does not have its checksum: the path corrupts bytes",
            );
            return self.fail(transfer, reason, now);
        }
        let reassembly = self
            .transfers
            .get_mut(&transfer)
            .and_then(|incoming| incoming.reassembly.as_mut());
        match reassembly.map(|reassembly| reassembly.commit(&part(header))) {
            Some(true) => self.on_segment(header, now),
            Some(false) => {}
            // It ended while the payload was being read.
            None => self.drop_bytes(on, bytes, now),
        }
        self.flow.raise(now);
    }

    fn place(
        &mut self,
        on: Priority,
        header: &ChunkHeader,
        now: Timestamp,
    ) -> Result<bool, Discard> {
        let transfer = header.extent.transfer;
        let Some(incoming) = self.transfers.get_mut(&transfer) else {
            self.stats.late_chunks += 1;
            return Err(Discard::Unknown);
        };
        let placed = incoming.place(on, header);
        match placed {
            Ok(_) if incoming.state == Receiving::AwaitingAnchor && on == Priority::Anchor => {
                self.flow.anchor_arrives(now);
            }
            Ok(_) => {}
            Err(Misplaced::Duplicate) => self.stats.duplicates += 1,
            Err(Misplaced::Violation(wrong)) => {
                self.fail(
                    transfer,
                    Reason::new(Code::Protocol, &wrong.to_string()),
                    now,
                );
            }
        }
        Ok(placed?)
    }

    /// Bytes were discarded: nobody holds them.
    fn drop_bytes(&mut self, on: Priority, bytes: Bytes, now: Timestamp) {
        self.stats.discarded += bytes;
        self.release(on, bytes, now);
    }

    /// A segment became whole: so may its level and the levels above it, and the transfer.
    fn on_segment(&mut self, header: &ChunkHeader, now: Timestamp) {
        let transfer = header.extent.transfer;
        self.events.push_back(Event::SegmentComplete {
            transfer,
            unit: header.extent.unit,
            segment: header.extent.segment,
            len: header.segment_len,
            checksum: header.segment_checksum,
        });
        let Some(incoming) = self.transfers.get_mut(&transfer) else {
            return;
        };
        let Some(reassembly) = &mut incoming.reassembly else {
            return;
        };
        while let Some(level) = reassembly.next_level() {
            self.events
                .push_back(Event::LevelComplete { transfer, level });
            if level == 0
                && let Ok(state) = incoming.state.step(ReceivingInput::Anchor)
            {
                incoming.state = state;
                self.awaiting -= 1;
            }
        }
        if reassembly.is_complete() {
            let reason = Reason::new(Code::Application, "complete");
            if self
                .finish(transfer, ReceivingInput::Everything, &reason, now)
                .is_ok()
            {
                self.say(Frame::Done(transfer), now);
            }
        }
        self.note_anchors();
    }
}
