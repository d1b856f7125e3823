//! The side that has the KV: what to send next, and what became of it.

mod error;
mod event;
mod flow;
mod hold;
mod outgoing;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use lynx_units::{Bytes, Epoch, Priority, Timestamp, TransferId, UnitIndex};

use crate::estimator::LinkEstimator;
use crate::history::History;
use crate::lifecycle::{Refused, Sending, SendingInput};
use crate::limits::{MAX_DESCRIPTOR, MAX_LIFETIME, MAX_TRANSFERS};
use crate::scheduler::Scheduler;
use crate::session::Session;
use crate::wire::{Credit, EncodeError, Frame, Open, Packet};
use crate::{Code, LinkEstimate, Reason};
use hold::Hold;
use outgoing::Outgoing;

pub use error::{OpenError, PublishError};
pub use event::{Event, OpenTransfer, Segment, SenderStats, Transmit};

/// One direction of one link in one epoch, on the side that sends.
///
/// Methods are of four kinds.
/// - Getters: [`epoch`](Self::epoch), [`estimate`](Self::estimate), [`stats`](Self::stats), [`is_over`](Self::is_over).
/// - Commands of the application: [`open`](Self::open), [`publish`](Self::publish), [`cancel`](Self::cancel),
///   [`shut_down`](Self::shut_down).
/// - The world told us: `handle_*`. Each takes the present moment, which never goes back.
/// - What we want done: `poll_*`.
///
/// After any command or `handle_*`, poll in this order: [`poll_event`](Self::poll_event) until `None`;
/// [`poll_transmit`](Self::poll_transmit) for [`Priority::Anchor`] and then for [`Priority::Residual`], each only while its
/// connection can take bytes, **one transmit at a time**, so that which chunk is next is decided as late as possible; then
/// [`poll_timeout`](Self::poll_timeout). The moment that it gives may change with every call of the first three kinds and
/// every transmit. `handle_timeout` before its moment does no harm.
///
/// A sender lives for one epoch. When a connection is lost, every transfer fails with a reason, events can still be
/// polled, and nothing is transmitted any more; the application retries with a new sender in a new epoch.
#[derive(Debug)]
pub struct Sender {
    session: Session,
    scheduler: Scheduler,
    estimator: LinkEstimator,
    /// Transfers that are not over.
    transfers: BTreeMap<TransferId, Outgoing>,
    deadlines: BTreeSet<(Timestamp, TransferId)>,
    history: History,
    /// Cumulative limits that the receiver has granted.
    limit: [Bytes; 2],
    /// Whether there was nothing to send since the last chunk.
    paused: bool,
    hold: Hold,
    /// Whether there was no payload on the wire when the last ping went out.
    pinged_empty: bool,
    events: VecDeque<Event>,
    stats: SenderStats,
}

impl Sender {
    /// The sender of a link whose two connections are up (both sides have said Hello) at `now`.
    pub fn new(epoch: Epoch, now: Timestamp) -> Self {
        Self {
            session: Session::new(epoch, now),
            scheduler: Scheduler::default(),
            estimator: LinkEstimator::new(),
            transfers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            history: History::default(),
            limit: [Bytes::ZERO; 2],
            paused: true,
            hold: Hold::default(),
            pinged_empty: false,
            events: VecDeque::new(),
            stats: SenderStats::default(),
        }
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.session.epoch()
    }

    /// What the link can carry.
    pub fn estimate(&self) -> LinkEstimate {
        self.estimator.estimate()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            stale_frames: self.session.stale_frames(),
            ..self.stats
        }
    }

    /// Whether the link is over: no chunk is transmitted any more.
    pub const fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Offers a transfer. Units may be published before it is accepted; they are sent afterwards. A deadline further away
    /// than [`MAX_LIFETIME`] is brought forward to it.
    pub fn open(&mut self, open: OpenTransfer, now: Timestamp) -> Result<(), OpenError> {
        let transfer = open.transfer;
        let deadline = open.deadline.min(now + MAX_LIFETIME);
        if self.is_over() {
            return Err(OpenError::Over);
        }
        if self.transfers.contains_key(&transfer) || self.history.contains(transfer) {
            return Err(OpenError::Reused(transfer));
        }
        if self.transfers.len() >= MAX_TRANSFERS {
            return Err(OpenError::TooMany(self.transfers.len()));
        }
        if deadline <= now {
            return Err(OpenError::Late(transfer));
        }
        if open.descriptor.len() > MAX_DESCRIPTOR {
            let error = EncodeError::Descriptor(open.descriptor.len());
            return Err(OpenError::Descriptor(transfer, error));
        }
        self.transfers
            .insert(transfer, Outgoing::new(transfer, open.plan, deadline, now));
        self.deadlines.insert((deadline, transfer));
        self.say(Frame::Open(Open {
            transfer,
            remaining: deadline - now,
            descriptor: open.descriptor,
        }));
        Ok(())
    }

    /// Hands over the next segments of a unit, which are ready to be sent: all of them at once, or the first ones now and
    /// the rest later. Units may come in any order. Gives the number of the first of these segments in its unit.
    pub fn publish(
        &mut self,
        transfer: TransferId,
        unit: UnitIndex,
        segments: &[Segment],
    ) -> Result<usize, PublishError> {
        let Some(outgoing) = self.transfers.get_mut(&transfer) else {
            return Err(PublishError::Unknown(transfer));
        };
        let accepted = outgoing.state != Sending::Offered;
        let first = outgoing.published(unit);
        let queued = outgoing.publish(unit, segments)?;
        if accepted {
            for (priority, key, whole) in queued {
                self.scheduler.push(priority, key, whole);
            }
        } else {
            let queued: Vec<_> = queued.collect();
            let anchor = queued.iter().any(|(on, ..)| *on == Priority::Anchor);
            if anchor && let Some(answer) = self.estimator.answer_time() {
                self.hold.offer(transfer, outgoing.offered + answer);
            }
            outgoing.held.extend(queued);
        }
        Ok(first)
    }

    /// Ends a transfer because the application no longer wants it; nothing where it is over already.
    pub fn cancel(&mut self, transfer: TransferId, why: &str) {
        let reason = Reason::new(Code::Application, why);
        if self.finish(transfer, SendingInput::Cancel, &reason).is_ok() {
            self.say(Frame::Cancel(transfer, reason));
        }
    }

    /// Ends a transfer because the application could not go on with it; nothing where it is over already.
    pub fn fail(&mut self, transfer: TransferId, reason: Reason) {
        if self.finish(transfer, SendingInput::Fail, &reason).is_ok() {
            self.say(Frame::Failed(transfer, reason));
        }
    }

    /// Ends every transfer; the driver then flushes what [`poll_transmit`](Self::poll_transmit) still gives and closes.
    pub fn shut_down(&mut self) {
        let reason = Reason::new(Code::Shutdown, "the sending side is shutting down");
        for transfer in self.names() {
            self.fail(transfer, reason.clone());
        }
        self.session.close();
    }

    /// A frame arrived on the connection for `on`.
    pub fn handle_frame(&mut self, on: Priority, packet: &Packet<'_>, now: Timestamp) {
        if !self.session.admits(on, packet.epoch, now) {
            return;
        }
        match &packet.frame {
            Frame::Accept(transfer) => self.on_accept(*transfer),
            Frame::Reject(transfer, reason) => {
                let reason = Reason::new(Code::Rejected, reason.text());
                self.on_end(*transfer, SendingInput::Reject, &reason);
            }
            Frame::Credit(credit) => self.on_credit(*credit),
            Frame::Ack(ack) => self.on_ack(*ack, now),
            Frame::Heartbeat(beat) => {
                if let Some(time) = self.session.on_heartbeat(beat, now) {
                    self.on_round_trip(time, now);
                }
            }
            Frame::Cancel(transfer, reason) => {
                self.on_end(*transfer, SendingInput::Cancel, reason);
            }
            Frame::Failed(transfer, reason) => self.on_end(*transfer, SendingInput::Fail, reason),
            Frame::Done(transfer) => {
                let reason = Reason::new(Code::Application, "complete");
                self.on_end(*transfer, SendingInput::Done, &reason);
            }
            Frame::Hello(_)
            | Frame::HelloAck(_)
            | Frame::Refuse(_)
            | Frame::Open(_)
            | Frame::Chunk(_) => self.break_link(Reason::new(
                Code::Protocol,
                "the receiving side said what only a sending or a dialling side says",
            )),
        }
    }

    /// Bytes arrived on the connection for `on`, be they a whole frame or not: it is alive.
    pub fn handle_activity(&mut self, on: Priority, now: Timestamp) {
        self.session.on_activity(on, now);
    }

    /// A connection was lost, or its stream is no longer a sequence of frames: the link is over.
    pub fn handle_disconnected(&mut self, reason: Reason) {
        self.break_link(reason);
    }

    /// The moment that [`poll_timeout`](Self::poll_timeout) gave has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.is_over() {
            return;
        }
        if let Some(reason) = self.session.on_timeout(now) {
            return self.break_link(reason);
        }
        self.hold.on_timeout(now);
        if self.in_flight() > Bytes::ZERO && self.estimator.round_trip_is_old(now) {
            self.hold.probe(now);
        }
        while let Some(&(deadline, transfer)) = self.deadlines.first()
            && deadline <= now
        {
            let reason = Reason::new(Code::Deadline, "the sending side's deadline passed");
            self.fail(transfer, reason);
        }
    }

    /// The next thing to write to the connection for `on`; `None` until something changes.
    pub fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Transmit> {
        if on == Priority::Anchor && self.in_flight() == Bytes::ZERO && self.hold.take_ping() {
            self.session.ping();
        }
        if let Some(frame) = self.session.poll(on, now) {
            if frame.is_ping() {
                self.pinged_empty = self.in_flight() == Bytes::ZERO;
            }
            let epoch = self.epoch();
            return Some(Transmit::Frame(Packet { epoch, frame }));
        }
        if self.is_over() {
            return None;
        }
        let chunk = self.estimate().chunk();
        let piece = self
            .may_send(on, now)
            .then(|| self.scheduler.next(on, chunk, self.credit(on)))
            .flatten();
        match piece {
            Some(piece) => Some(Transmit::Chunk(self.hand_out(on, &piece))),
            None => {
                self.note_idle();
                None
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` once the link is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_over() {
            return None;
        }
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        [deadline, self.hold.next()]
            .into_iter()
            .flatten()
            .chain([self.session.next_timeout()])
            .min()
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn on_accept(&mut self, transfer: TransferId) {
        let Some(outgoing) = self.transfers.get_mut(&transfer) else {
            self.stats.late_frames += 1;
            return;
        };
        match outgoing.state.step(SendingInput::Accept) {
            Ok(state) => {
                outgoing.state = state;
                self.hold.answered(transfer);
                for (priority, key, whole) in core::mem::take(&mut outgoing.held) {
                    self.scheduler.push(priority, key, whole);
                }
                self.events.push_back(Event::Accepted(transfer));
            }
            Err(refused) => self.on_refused(transfer, refused),
        }
    }

    /// The receiver ended a transfer.
    fn on_end(&mut self, transfer: TransferId, input: SendingInput, reason: &Reason) {
        if let Err(refused) = self.finish(transfer, input, reason) {
            self.on_refused(transfer, refused);
        }
    }

    fn on_refused(&mut self, transfer: TransferId, refused: Refused) {
        match refused {
            Refused::Late => self.stats.late_frames += 1,
            Refused::Illegal => self.fail(
                transfer,
                Reason::new(Code::Protocol, "the receiving side answered out of turn"),
            ),
        }
    }

    fn on_credit(&mut self, credit: Credit) {
        for (limit, granted) in self.limit.iter_mut().zip(credit.limit) {
            // Limits only rise, so that an old frame can't take back what a newer one gave.
            *limit = granted.max(*limit);
        }
    }

    /// Takes a last step of a transfer, and says so to the application.
    fn finish(
        &mut self,
        transfer: TransferId,
        input: SendingInput,
        reason: &Reason,
    ) -> Result<(), Refused> {
        let outgoing = self.transfers.get(&transfer).ok_or(Refused::Late)?;
        let event = match outgoing.state.step(input)? {
            Sending::Complete => Event::Complete(transfer),
            Sending::Cancelled => Event::Cancelled(transfer, reason.clone()),
            Sending::Failed | Sending::Offered | Sending::Streaming | Sending::Sent => {
                Event::Failed(transfer, reason.clone())
            }
        };
        let deadline = outgoing.deadline;
        self.transfers.remove(&transfer);
        self.hold.answered(transfer);
        self.deadlines.remove(&(deadline, transfer));
        self.scheduler.remove(deadline, transfer);
        self.history.add(transfer);
        self.events.push_back(event);
        Ok(())
    }

    fn break_link(&mut self, reason: Reason) {
        if self.is_over() {
            return;
        }
        self.session.break_off();
        for transfer in self.names() {
            // Every transfer in the table can fail.
            let failed = self.finish(transfer, SendingInput::Fail, &reason);
            debug_assert_eq!(failed, Ok(()));
        }
        self.events.push_back(Event::Broken(reason));
    }

    fn say(&mut self, frame: Frame<'static>) {
        if !self.is_over() && !self.session.say(frame) {
            self.break_link(Reason::new(
                Code::Protocol,
                "the receiving side lets frames pile up",
            ));
        }
    }

    fn names(&self) -> Vec<TransferId> {
        self.transfers.keys().copied().collect()
    }
}
