//! The side that wants the KV: where bytes go, what is whole, and how much more may come.

mod chunks;
mod error;
mod event;
mod flow;
mod incoming;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use lynx_units::{Bytes, Epoch, Priority, Timestamp, TransferId};

use crate::credit::BookFull;
use crate::history::History;
use crate::lifecycle::{Receiving, ReceivingInput, Refused};
use crate::limits::{MAX_LIFETIME, MAX_TRANSFERS};
use crate::session::Session;
use crate::wire::{Frame, Open, Packet};
use crate::{Code, CreditBook, LinkEstimate, Reason, TransferPlan};
use flow::Flow;
use incoming::Incoming;

pub use error::AcceptError;
pub use event::{Discard, Event, Placement, ReceiverConfig, ReceiverStats};

/// One direction of one link in one epoch, on the side that receives.
///
/// Its methods are of the same four kinds as [`Sender`](crate::Sender)'s, polled in the same order. Chunks take a path of
/// their own, so that payload is read straight to where it belongs:
/// 1. the driver decodes a [`Frame::Chunk`] and asks
///    [`handle_chunk_header`](Self::handle_chunk_header);
/// 2. on a [`Placement`] it reads `extent.len` bytes into the segment's buffer at `extent.offset`, allocating the buffer
///    (`segment_len` bytes) where the placement is the segment's first; on a [`Discard`] it reads as many bytes and drops
///    them, and that is all;
/// 3. it tells [`handle_chunk_done`](Self::handle_chunk_done) whether the payload had the header's CRC32C.
///
/// Between 2 and 3 the transfer may end (a deadline, a cancellation on the other connection): the driver then drops the
/// buffer with the event and the rest of the payload as it comes, and still calls `handle_chunk_done`.
///
/// Bytes of complete segments count against the link's window until the application has
/// [`release`](Self::release)d them; everything else is released by the receiver itself.
#[derive(Debug)]
pub struct Receiver {
    session: Session,
    config: ReceiverConfig,
    flow: Flow,
    /// Transfers that are not over.
    transfers: BTreeMap<TransferId, Incoming>,
    /// How many of them wait for their anchor.
    awaiting: usize,
    deadlines: BTreeSet<(Timestamp, TransferId)>,
    history: History,
    events: VecDeque<Event>,
    stats: ReceiverStats,
}

impl Receiver {
    /// The receiver of a link whose two connections are up (both sides have said Hello) at `now`. Windows smaller than
    /// [`ReceiverConfig::MIN_WINDOW`] are raised to it.
    pub fn new(
        epoch: Epoch,
        config: ReceiverConfig,
        book: &Arc<CreditBook>,
        now: Timestamp,
    ) -> Result<Self, BookFull> {
        let config = ReceiverConfig {
            window: config
                .window
                .map(|size| size.max(ReceiverConfig::MIN_WINDOW)),
        };
        Ok(Self {
            session: Session::new(epoch, now).asking_back(),
            config,
            flow: Flow::new(config, book, now)?,
            transfers: BTreeMap::new(),
            awaiting: 0,
            deadlines: BTreeSet::new(),
            history: History::default(),
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
        })
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.session.epoch()
    }

    /// What the link can carry, as far as this side sees it.
    pub fn estimate(&self) -> LinkEstimate {
        self.flow.estimate()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            discarded: self.stats.discarded,
            duplicates: self.stats.duplicates,
            late_chunks: self.stats.late_chunks,
            corrupt: self.stats.corrupt,
            late_frames: self.stats.late_frames,
            stale_frames: self.session.stale_frames(),
            ..self.flow.stats()
        }
    }

    /// Whether the link is over.
    pub const fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Takes an offer. On an error the offer still stands; reject it.
    pub fn accept(
        &mut self,
        transfer: TransferId,
        plan: Arc<TransferPlan>,
        now: Timestamp,
    ) -> Result<(), AcceptError> {
        let Some(incoming) = self.transfers.get_mut(&transfer) else {
            return Err(AcceptError::NotOffered(transfer));
        };
        let Ok(state) = incoming.state.step(ReceivingInput::Accept) else {
            return Err(AcceptError::NotOffered(transfer));
        };
        for (priority, window) in Priority::ALL.into_iter().zip(self.config.window) {
            let segment = plan.largest(priority);
            if segment > window {
                return Err(AcceptError::Window { segment, window });
            }
        }
        incoming.accept(state, plan);
        self.awaiting += 1;
        self.flow.anchor_arrives(now);
        self.say(Frame::Accept(transfer), now);
        Ok(())
    }

    /// Does not take an offer; nothing where it is not one, or no longer. There is no further event about it.
    pub fn reject(&mut self, transfer: TransferId, why: &str, now: Timestamp) {
        let reason = Reason::new(Code::Rejected, why);
        if self
            .finish(transfer, ReceivingInput::Reject, &reason, now)
            .is_ok()
        {
            self.say(Frame::Reject(transfer, reason), now);
        }
    }

    /// Ends a transfer because the application no longer wants it; nothing where it is over already.
    pub fn cancel(&mut self, transfer: TransferId, why: &str, now: Timestamp) {
        let reason = Reason::new(Code::Application, why);
        if self
            .finish(transfer, ReceivingInput::Cancel, &reason, now)
            .is_ok()
        {
            self.say(Frame::Cancel(transfer, reason), now);
        }
    }

    /// Ends a transfer because the application could not go on with it, a merge error say; nothing where it is over.
    pub fn fail(&mut self, transfer: TransferId, reason: Reason, now: Timestamp) {
        if self
            .finish(transfer, ReceivingInput::Fail, &reason, now)
            .is_ok()
        {
            self.say(Frame::Failed(transfer, reason), now);
        }
    }

    /// The application has consumed or dropped `bytes` of complete segments of a priority: as many more may come.
    pub fn release(&mut self, priority: Priority, bytes: Bytes, now: Timestamp) {
        self.flow.release(priority, bytes);
        self.flow.raise(now);
    }

    /// Ends every transfer; the driver then flushes what [`poll_transmit`](Self::poll_transmit) still gives and closes.
    pub fn shut_down(&mut self, now: Timestamp) {
        let reason = Reason::new(Code::Shutdown, "the receiving side is shutting down");
        for transfer in self.names() {
            self.fail(transfer, reason.clone(), now);
        }
        self.session.close();
    }

    /// A frame other than a chunk arrived on the connection for `on`.
    pub fn handle_frame(&mut self, on: Priority, packet: &Packet<'_>, now: Timestamp) {
        if !self.session.admits(on, packet.epoch, now) {
            return;
        }
        match &packet.frame {
            Frame::Open(open) => self.on_open(open, now),
            Frame::Heartbeat(beat) => {
                if let Some(time) = self.session.on_heartbeat(beat, now) {
                    self.flow.on_round_trip(time, now);
                }
            }
            Frame::Cancel(transfer, reason) => {
                self.on_end(*transfer, ReceivingInput::Cancel, reason, now);
            }
            Frame::Failed(transfer, reason) => {
                self.on_end(*transfer, ReceivingInput::Fail, reason, now);
            }
            Frame::Hello(_)
            | Frame::HelloAck(_)
            | Frame::Refuse(_)
            | Frame::Accept(_)
            | Frame::Reject(..)
            | Frame::Chunk(_)
            | Frame::Credit(_)
            | Frame::Ack(_)
            | Frame::Done(_) => self.break_link(
                Reason::new(
                    Code::Protocol,
                    "the sending side said what only a receiving or a dialling side says",
                ),
                now,
            ),
        }
    }

    /// Bytes arrived on the connection for `on`, be they a whole frame or not: it is alive.
    pub fn handle_activity(&mut self, on: Priority, now: Timestamp) {
        self.session.on_activity(on, now);
    }

    /// A connection was lost, or its stream is no longer a sequence of frames: the link is over.
    pub fn handle_disconnected(&mut self, reason: Reason, now: Timestamp) {
        self.break_link(reason, now);
    }

    /// The moment that [`poll_timeout`](Self::poll_timeout) gave has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.is_over() {
            return;
        }
        if let Some(reason) = self.session.on_timeout(now) {
            return self.break_link(reason, now);
        }
        while let Some(&(deadline, transfer)) = self.deadlines.first()
            && deadline <= now
        {
            let reason = Reason::new(Code::Deadline, "the receiving side's deadline passed");
            self.fail(transfer, reason, now);
        }
        self.flow.raise(now);
    }

    /// The next frame to write to the connection for `on`; `None` until something changes. A receiver sends no chunks.
    pub fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Packet<'static>> {
        let speaks = on == Priority::Anchor && !self.is_over();
        let feedback = speaks.then(|| self.flow.feedback()).flatten();
        let frame = match feedback {
            Some(frame) => frame,
            None => self.session.poll(on, now)?,
        };
        if frame.is_ping() {
            self.flow.on_ping();
        }
        let epoch = self.epoch();
        Some(Packet { epoch, frame })
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` once the link is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_over() {
            return None;
        }
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        [deadline, self.flow.recheck()]
            .into_iter()
            .flatten()
            .chain([self.session.next_timeout()])
            .min()
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn on_open(&mut self, open: &Open<'_>, now: Timestamp) {
        let transfer = open.transfer;
        if self.transfers.contains_key(&transfer) || self.history.contains(transfer) {
            let reason = Reason::new(
                Code::Protocol,
                "the sending side used a transfer's name twice",
            );
            return self.break_link(reason, now);
        }
        if self.transfers.len() >= MAX_TRANSFERS {
            self.history.add(transfer);
            let reason = Reason::new(Code::Rejected, "too many transfers are open on this link");
            return self.say(Frame::Reject(transfer, reason), now);
        }
        let deadline = now + open.remaining.min(MAX_LIFETIME);
        self.transfers.insert(transfer, Incoming::new(deadline));
        self.deadlines.insert((deadline, transfer));
        self.events.push_back(Event::Offered {
            transfer,
            descriptor: open.descriptor.to_vec(),
            deadline,
        });
    }

    /// The sender ended a transfer.
    fn on_end(
        &mut self,
        transfer: TransferId,
        input: ReceivingInput,
        reason: &Reason,
        now: Timestamp,
    ) {
        if self.finish(transfer, input, reason, now).is_err() {
            self.stats.late_frames += 1;
        }
    }

    fn note_anchors(&self) {
        if self.awaiting == 0 {
            self.flow.no_anchor();
        }
    }

    /// Takes a last step of a transfer, and says so to the application.
    fn finish(
        &mut self,
        transfer: TransferId,
        input: ReceivingInput,
        reason: &Reason,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let incoming = self.transfers.get(&transfer).ok_or(Refused::Late)?;
        let event = match incoming.state.step(input)? {
            Receiving::Complete => Some(Event::Complete(transfer)),
            Receiving::Cancelled => Some(Event::Cancelled(transfer, reason.clone())),
            Receiving::Failed => Some(Event::Failed(transfer, reason.clone())),
            // The application itself rejected it.
            Receiving::Rejected => None,
            Receiving::Offered | Receiving::AwaitingAnchor | Receiving::AwaitingRest => None,
        };
        self.awaiting -= usize::from(incoming.state == Receiving::AwaitingAnchor);
        for priority in Priority::ALL {
            self.flow
                .release(priority, incoming.partial_bytes(priority));
        }
        self.deadlines.remove(&(incoming.deadline, transfer));
        self.transfers.remove(&transfer);
        self.history.add(transfer);
        self.events.extend(event);
        self.note_anchors();
        self.flow.raise(now);
        Ok(())
    }

    fn break_link(&mut self, reason: Reason, now: Timestamp) {
        if self.is_over() {
            return;
        }
        self.session.break_off();
        for transfer in self.names() {
            // Every transfer in the table can fail.
            let failed = self.finish(transfer, ReceivingInput::Fail, &reason, now);
            debug_assert_eq!(failed, Ok(()));
        }
        self.events.push_back(Event::Broken(reason));
    }

    fn say(&mut self, frame: Frame<'static>, now: Timestamp) {
        if !self.is_over() && !self.session.say(frame) {
            // The backlog is the peer's doing, and nothing can be said about it any more.
            let reason = Reason::new(Code::Protocol, "the sending side lets frames pile up");
            self.break_link(reason, now);
        }
    }

    fn names(&self) -> Vec<TransferId> {
        self.transfers.keys().copied().collect()
    }
}
