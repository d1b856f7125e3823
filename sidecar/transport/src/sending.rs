//! The side that sends: the protocol's sender and the payload that it only names.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use lynx_protocol::sender::{Event, OpenTransfer, PublishError, Segment, SenderStats, Transmit};
use lynx_protocol::wire::{ChunkHeader, Packet};
use lynx_protocol::{Code, Extent, LinkEstimate, Reason, Sender, TransferPlan};
use lynx_units::{Epoch, Priority, Timestamp, TransferId, UnitIndex};
use tokio::sync::{mpsc, watch};

use crate::link::{LinkStats, Watched};
use crate::side::{Outgoing, Side};

/// One segment of a published unit.
#[derive(Clone, Debug)]
pub struct SegmentPayload {
    /// Its bytes: shared memory, dropped once they are written or the transfer is over. At most `u32::MAX`, and at most
    /// what the plan allows.
    pub bytes: Bytes,
    /// The codec's checksum, handed to the receiver's application as it is.
    pub checksum: u64,
}

/// The link's task is gone: its [`SenderEvents`] or [`ReceiverEvents`](crate::ReceiverEvents) have said why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is over: its events say why; go on with a new one")]
pub struct LinkOver;

/// Commands to the sending side of a link. Clones command the same link; when the last is dropped, the link shuts down.
///
/// No method waits, so that an engine's thread can call it between two layers. An opened transfer ends in exactly one
/// event, [`Event::Complete`], [`Event::Failed`] or [`Event::Cancelled`], whatever was wrong with it.
#[derive(Clone, Debug)]
pub struct SenderHandle {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) stats: watch::Receiver<LinkStats<SenderStats>>,
    pub(crate) epoch: Epoch,
}

/// What becomes of a link's transfers, in order.
#[derive(Debug)]
pub struct SenderEvents {
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Open(OpenTransfer),
    Publish(TransferId, UnitIndex, Vec<SegmentPayload>),
    Cancel(TransferId, String),
    Fail(TransferId, Reason),
}

impl SenderHandle {
    /// Offers a transfer. What is wrong with it comes as [`Event::Failed`].
    ///
    /// # Errors
    /// The link is over.
    pub fn open(&self, open: OpenTransfer) -> Result<(), LinkOver> {
        self.command(Command::Open(open))
    }

    /// Hands over the next segments of a unit, which are ready: all of them, or the first ones now and the rest later. What
    /// doesn't fit the plan fails its transfer; what belongs to a transfer that is over is dropped.
    ///
    /// # Errors
    /// The link is over.
    pub fn publish(
        &self,
        transfer: TransferId,
        unit: UnitIndex,
        segments: Vec<SegmentPayload>,
    ) -> Result<(), LinkOver> {
        self.command(Command::Publish(transfer, unit, segments))
    }

    /// Ends a transfer because it is no longer wanted.
    ///
    /// # Errors
    /// The link is over, and the transfer with it.
    pub fn cancel(&self, transfer: TransferId, why: &str) -> Result<(), LinkOver> {
        self.command(Command::Cancel(transfer, why.to_owned()))
    }

    /// Ends a transfer because this side can't go on with it.
    ///
    /// # Errors
    /// The link is over, and the transfer with it.
    pub fn fail(&self, transfer: TransferId, reason: Reason) -> Result<(), LinkOver> {
        self.command(Command::Fail(transfer, reason))
    }

    /// The link's figures, some hundredths of a second old at most while it is busy.
    pub fn stats(&self) -> LinkStats<SenderStats> {
        *self.stats.borrow()
    }

    /// The same for whoever only looks: it does not keep the link up.
    pub fn watch_stats(&self) -> Watched<SenderStats> {
        Watched(self.stats.clone())
    }

    /// The life of the link that this commands.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn command(&self, command: Command) -> Result<(), LinkOver> {
        self.commands.send(command).map_err(|_| LinkOver)
    }
}

impl SenderEvents {
    /// The next event; `None` after [`Event::Broken`], or once the link has been shut down.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The same for a thread outside of the runtime.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}

/// The sender with its payload.
#[derive(Debug)]
pub(crate) struct Sending {
    machine: Sender,
    payloads: HashMap<TransferId, Payloads>,
    /// Events that the application hasn't got yet.
    gathered: Vec<Event>,
    events: mpsc::UnboundedSender<Event>,
}

/// What of a transfer has been published and isn't written yet.
#[derive(Debug)]
struct Payloads {
    plan: Arc<TransferPlan>,
    /// `[unit][segment]`.
    segments: Vec<Bytes>,
}

impl Payloads {
    fn new(plan: Arc<TransferPlan>) -> Self {
        let count = plan.units() as usize * plan.segments();
        Self {
            plan,
            segments: vec![Bytes::new(); count],
        }
    }

    fn segment(&mut self, extent: &Extent) -> Option<&mut Bytes> {
        let row = extent.unit.0 as usize * self.plan.segments();
        self.segments.get_mut(row + usize::from(extent.segment.0))
    }

    /// Puts a unit's segments from `first` on in their places.
    fn put(&mut self, unit: UnitIndex, first: usize, segments: Vec<SegmentPayload>) {
        let start = unit.0 as usize * self.plan.segments() + first;
        for (place, segment) in self.segments.iter_mut().skip(start).zip(segments) {
            *place = segment.bytes;
        }
    }
}

impl Sending {
    pub(crate) fn new(machine: Sender, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            machine,
            payloads: HashMap::new(),
            gathered: Vec::new(),
            events,
        }
    }

    fn open(&mut self, open: OpenTransfer, now: Timestamp) {
        let (transfer, plan) = (open.transfer, Arc::clone(&open.plan));
        match self.machine.open(open, now) {
            Ok(()) => {
                self.payloads.insert(transfer, Payloads::new(plan));
            }
            Err(error) => self.gathered.push(Event::Failed(
                transfer,
                Reason::new(Code::Application, &error.to_string()),
            )),
        }
    }

    fn publish(&mut self, transfer: TransferId, unit: UnitIndex, payload: Vec<SegmentPayload>) {
        let segments: Vec<Segment> = payload
            .iter()
            .map(|segment| Segment {
                // One that is too long for a u32 is longer than any plan allows, and refused as such.
                len: u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX),
                checksum: segment.checksum,
            })
            .collect();
        match self.machine.publish(transfer, unit, &segments) {
            Ok(first) => {
                if let Some(payloads) = self.payloads.get_mut(&transfer) {
                    payloads.put(unit, first, payload);
                }
            }
            // It ended while the unit was on its way here: an event has said so.
            Err(PublishError::Unknown(_)) => {}
            Err(error) => {
                let reason = Reason::new(Code::Application, &error.to_string());
                self.machine.fail(transfer, reason);
            }
        }
    }

    /// The payload of an extent; `None` where the application's memory isn't there, which would be an error in this crate.
    fn payload(&mut self, extent: &Extent) -> Option<Bytes> {
        let segment = self.payloads.get_mut(&extent.transfer)?.segment(extent)?;
        let range = extent.offset as usize..usize::try_from(extent.end()).ok()?;
        (range.end <= segment.len()).then(|| segment.slice(range))
    }
}

impl Side for Sending {
    type Command = Command;
    type Counts = SenderStats;

    fn command(&mut self, command: Command, now: Timestamp) {
        match command {
            Command::Open(open) => self.open(open, now),
            Command::Publish(transfer, unit, segments) => {
                self.publish(transfer, unit, segments);
            }
            Command::Cancel(transfer, why) => self.machine.cancel(transfer, &why),
            Command::Fail(transfer, reason) => self.machine.fail(transfer, reason),
        }
    }

    fn shut_down(&mut self, _now: Timestamp) {
        self.machine.shut_down();
    }

    fn handle_packet(&mut self, on: Priority, packet: &Packet<'_>, now: Timestamp) {
        self.machine.handle_frame(on, packet, now);
    }

    fn handle_activity(&mut self, on: Priority, now: Timestamp) {
        self.machine.handle_activity(on, now);
    }

    fn handle_disconnected(&mut self, reason: Reason, _now: Timestamp) {
        self.machine.handle_disconnected(reason);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.machine.handle_timeout(now);
    }

    /// A receiver sends no chunks: a peer that does has mistaken its role.
    fn chunk_begins(&mut self, _on: Priority, _header: &ChunkHeader, _now: Timestamp) -> bool {
        let reason = Reason::new(
            Code::Protocol,
            "the peer sent a chunk, but on this link it receives",
        );
        self.machine.handle_disconnected(reason);
        false
    }

    fn slot(&mut self, _header: &ChunkHeader) -> Option<&mut [u8]> {
        None
    }

    fn chunk_done(&mut self, _: Priority, _: &ChunkHeader, _: bool, _: Timestamp) {}

    fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Outgoing> {
        loop {
            let header = match self.machine.poll_transmit(on, now)? {
                Transmit::Frame(packet) => return Some(Outgoing::Frame(packet)),
                Transmit::Chunk(header) => header,
            };
            if let Some(payload) = self.payload(&header.extent) {
                return Some(Outgoing::Chunk(header, payload));
            }
            let reason = Reason::new(Code::Application, "the payload of a chunk is gone");
            self.machine.fail(header.extent.transfer, reason);
        }
    }

    fn chunk_written(&mut self, header: &ChunkHeader) {
        let extent = &header.extent;
        if extent.end() == u64::from(header.segment_len)
            && let Some(payloads) = self.payloads.get_mut(&extent.transfer)
            && let Some(segment) = payloads.segment(extent)
        {
            *segment = Bytes::new();
        }
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.machine.poll_timeout()
    }

    fn gather_events(&mut self) -> bool {
        while let Some(event) = self.machine.poll_event() {
            match &event {
                Event::Complete(over) | Event::Failed(over, _) | Event::Cancelled(over, _) => {
                    self.payloads.remove(over);
                }
                Event::Accepted(_) | Event::Broken(_) => {}
            }
            self.gathered.push(event);
        }
        !self.gathered.is_empty()
    }

    fn send_events(&mut self) {
        for event in self.gathered.drain(..) {
            // An application that no longer listens has dropped its end, and its handle is next.
            drop(self.events.send(event));
        }
    }

    fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    fn estimate(&self) -> LinkEstimate {
        self.machine.estimate()
    }

    fn counts(&self) -> SenderStats {
        self.machine.stats()
    }
}
