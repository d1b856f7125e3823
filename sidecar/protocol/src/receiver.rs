//! The side that wants the KV: where bytes go, what is whole, and how much more may come.

mod error;
mod event;
mod incoming;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lynx_units::{Bytes, Epoch, Priority, Timestamp, TransferId};

use crate::credit::{BookFull, Seat, Window, Withhold};
use crate::estimator::LinkEstimator;
use crate::history::History;
use crate::lifecycle::{Receiving, ReceivingInput, Refused};
use crate::limits::{MAX_LIFETIME, MAX_TRANSFERS};
use crate::session::Session;
use crate::wire::{Ack, ChunkHeader, Credit, Frame, Open, Packet};
use crate::{Code, CreditBook, LinkEstimate, Reason, TransferPlan};
use incoming::{Incoming, Misplaced, part};

pub use error::AcceptError;
pub use event::{Discard, Event, Placement, ReceiverConfig, ReceiverStats};

/// An anchor's credit is bounded by memory alone.
const UNBOUNDED: Bytes = Bytes::new(u64::MAX);
/// A pause between chunks that is taken for a pause of the sender: the link's rate is not measured over it.
const PAUSE: Duration = Duration::from_millis(20);

/// One direction of one link in one epoch, on the side that receives.
///
/// Its methods are of the same four kinds as [`Sender`](crate::Sender)'s, polled in the same order. Chunks take a path of
/// their own, so that payload is read straight to where it belongs:
/// 1. the driver decodes a [`Frame::Chunk`](crate::wire::Frame::Chunk) and asks
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
    seat: Seat,
    windows: [Window; 2],
    withhold: Withhold,
    estimator: LinkEstimator,
    last_chunk: Timestamp,
    ack_due: bool,
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
        let mut receiver = Self {
            session: Session::new(epoch, now),
            config,
            seat: Seat::take(book, config.window.into_iter().sum())?,
            windows: config.window.map(Window::new),
            withhold: Withhold::default(),
            estimator: LinkEstimator::new(),
            last_chunk: now,
            ack_due: false,
            transfers: BTreeMap::new(),
            awaiting: 0,
            deadlines: BTreeSet::new(),
            history: History::default(),
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
        };
        receiver.raise(now);
        Ok(receiver)
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.session.epoch()
    }

    /// What the link can carry, as far as this side sees it.
    pub fn estimate(&self) -> LinkEstimate {
        self.estimator.estimate()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            stale_frames: self.session.stale_frames(),
            withheld: self.withhold.total(),
            starved: self.withhold.starved(),
            ..self.stats
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
        self.seat.anchor_arrives(now);
        self.say(Frame::Accept(transfer));
        Ok(())
    }

    /// Does not take an offer; nothing where it is not one, or no longer. There is no further event about it.
    pub fn reject(&mut self, transfer: TransferId, why: &str, now: Timestamp) {
        let reason = Reason::new(Code::Rejected, why);
        if self
            .finish(transfer, ReceivingInput::Reject, &reason, now)
            .is_ok()
        {
            self.say(Frame::Reject(transfer, reason));
        }
    }

    /// Ends a transfer because the application no longer wants it; nothing where it is over already.
    pub fn cancel(&mut self, transfer: TransferId, why: &str, now: Timestamp) {
        let reason = Reason::new(Code::Application, why);
        if self
            .finish(transfer, ReceivingInput::Cancel, &reason, now)
            .is_ok()
        {
            self.say(Frame::Cancel(transfer, reason));
        }
    }

    /// Ends a transfer because the application could not go on with it, a merge error say; nothing where it is over.
    pub fn fail(&mut self, transfer: TransferId, reason: Reason, now: Timestamp) {
        if self
            .finish(transfer, ReceivingInput::Fail, &reason, now)
            .is_ok()
        {
            self.say(Frame::Failed(transfer, reason));
        }
    }

    /// The application has consumed or dropped `bytes` of complete segments of a priority: as many more may come.
    pub fn release(&mut self, priority: Priority, bytes: Bytes, now: Timestamp) {
        self.windows[priority.index()].release(bytes);
        self.raise(now);
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
                    self.estimator.on_round_trip(time, now);
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
        if !self.windows[on.index()].receive(bytes) {
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
                self.on_arrived(on, bytes, now);
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
        self.on_arrived(on, bytes, now);
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
        self.raise(now);
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
        self.raise(now);
    }

    /// The next frame to write to the connection for `on`; `None` until something changes. A receiver sends no chunks.
    pub fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Packet<'static>> {
        let frame = match self.feedback(on) {
            Some(frame) => frame,
            None => self.session.poll(on, now)?,
        };
        let epoch = self.epoch();
        Some(Packet { epoch, frame })
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` once the link is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_over() {
            return None;
        }
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        [deadline, self.withhold.recheck()]
            .into_iter()
            .flatten()
            .chain([self.session.next_timeout()])
            .min()
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Credit or an acknowledgement, where one is due.
    fn feedback(&mut self, on: Priority) -> Option<Frame<'static>> {
        if self.is_over() || on == Priority::Residual {
            return None;
        }
        let ahead = [UNBOUNDED, self.residual_ahead()];
        let mut windows = self.windows.iter().zip(ahead);
        if windows.any(|(window, ahead)| window.is_due(ahead)) {
            let [anchor, residual] = &mut self.windows;
            let limit = [anchor.announce(), residual.announce()];
            return Some(Frame::Credit(Credit { limit }));
        }
        core::mem::take(&mut self.ack_due).then(|| {
            Frame::Ack(Ack {
                received: self.stats.received,
                clock: self.last_chunk.since_origin(),
            })
        })
    }

    /// How far residuals may run ahead of what has come: what keeps the wire full, so that what a sender still may send
    /// when another link's anchor comes is short too.
    fn residual_ahead(&self) -> Bytes {
        let window = self.estimator.bulk_window();
        window + window
    }

    /// Grants what may be granted.
    fn raise(&mut self, now: Timestamp) {
        let ahead = self.residual_ahead();
        let [anchor, residual] = &mut self.windows;
        anchor.raise(UNBOUNDED);
        if !residual.can_raise(ahead) {
            self.withhold.rest(now);
        } else if self.withhold.may_grant(self.seat.others_active(now), now) {
            residual.raise(ahead);
        }
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
            return self.say(Frame::Reject(transfer, reason));
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
                self.seat.anchor_arrives(now);
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

    /// A chunk's payload has been read, to its place or to nowhere.
    fn on_arrived(&mut self, on: Priority, bytes: Bytes, now: Timestamp) {
        let before = self.stats.received.into_iter().sum();
        if now - self.last_chunk > PAUSE {
            self.estimator.on_idle(before);
        }
        self.last_chunk = now;
        self.ack_due = true;
        self.stats.received[on.index()] += bytes;
        self.stats.chunks[on.index()] += 1;
        self.estimator
            .on_delivery(before + bytes, now.since_origin(), now);
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
                self.say(Frame::Done(transfer));
            }
        }
        self.note_anchors();
    }

    fn note_anchors(&self) {
        if self.awaiting == 0 {
            self.seat.no_anchor();
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
            self.windows[priority.index()].release(incoming.partial_bytes(priority));
        }
        self.deadlines.remove(&(incoming.deadline, transfer));
        self.transfers.remove(&transfer);
        self.history.add(transfer);
        self.events.extend(event);
        self.note_anchors();
        self.raise(now);
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

    fn say(&mut self, frame: Frame<'static>) {
        if !self.is_over() && !self.session.say(frame) {
            // The backlog is the peer's doing, and nothing can be said about it any more.
            let reason = Reason::new(Code::Protocol, "the sending side lets frames pile up");
            self.break_link(reason, self.last_chunk);
        }
    }

    fn names(&self) -> Vec<TransferId> {
        self.transfers.keys().copied().collect()
    }
}
