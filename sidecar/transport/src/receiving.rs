//! The side that receives: the protocol's receiver and the buffers that it only names.

mod spare;

use std::collections::HashMap;
use std::sync::Arc;

use lynx_protocol::receiver::{AcceptError, Event, ReceiverStats};
use lynx_protocol::wire::{ChunkHeader, Packet};
use lynx_protocol::{Code, Extent, LinkEstimate, Reason, Receiver, TransferPlan};
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};
use tokio::sync::{mpsc, watch};

use crate::link::{LinkStats, Watched};
use crate::segment::SegmentBytes;
use crate::sending::LinkOver;
use crate::side::{Outgoing, Side};
use spare::Spare;

/// What the application of the receiving side learns, in order.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// The peer offers a transfer: answer with [`ReceiverHandle::accept`] or [`ReceiverHandle::reject`].
    Offered {
        /// The transfer.
        transfer: TransferId,
        /// What its plan is derived from.
        descriptor: Vec<u8>,
        /// When it fails unless it is complete, on the clock of the link's configuration.
        deadline: Timestamp,
    },
    /// A segment is whole.
    SegmentComplete {
        /// The transfer.
        transfer: TransferId,
        /// The unit.
        unit: UnitIndex,
        /// The segment.
        segment: SegmentIndex,
        /// Its bytes.
        bytes: SegmentBytes,
        /// The codec's checksum as the sender's application gave it: for the merge to check.
        checksum: u64,
    },
    /// All units have all segments of this level and of those below it.
    LevelComplete {
        /// The transfer.
        transfer: TransferId,
        /// The level; 0 is the anchor.
        level: u8,
    },
    /// Everything is here. The transfer is over.
    Complete(TransferId),
    /// The transfer could not be finished. It is over.
    Failed(TransferId, Reason),
    /// One side's application cancelled it. It is over.
    Cancelled(TransferId, Reason),
    /// The link is over, and every transfer on it: each has had its own event before this one.
    Broken(Reason),
}

/// Commands to the receiving side of a link. Clones command the same link; when the last is dropped, the link shuts down.
/// No method waits.
#[derive(Clone, Debug)]
pub struct ReceiverHandle {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) stats: watch::Receiver<LinkStats<ReceiverStats>>,
    pub(crate) epoch: Epoch,
}

/// What happens on a link, in order.
#[derive(Debug)]
pub struct ReceiverEvents {
    pub(crate) events: mpsc::UnboundedReceiver<ReceiverEvent>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Accept(TransferId, Arc<TransferPlan>),
    Reject(TransferId, String),
    Cancel(TransferId, String),
    Fail(TransferId, Reason),
    /// So much of the window is free again. The memory is here where the application had no other use for it.
    Release(Priority, Bytes, Option<Vec<u8>>),
}

impl ReceiverHandle {
    /// Takes an offer. A plan that can't be received is rejected, and comes back as [`ReceiverEvent::Failed`]; an offer
    /// that is over meanwhile has had its event.
    ///
    /// # Errors
    /// The link is over.
    pub fn accept(&self, transfer: TransferId, plan: Arc<TransferPlan>) -> Result<(), LinkOver> {
        self.command(Command::Accept(transfer, plan))
    }

    /// Does not take an offer. There is no further event about it.
    ///
    /// # Errors
    /// The link is over.
    pub fn reject(&self, transfer: TransferId, why: &str) -> Result<(), LinkOver> {
        self.command(Command::Reject(transfer, why.to_owned()))
    }

    /// Ends a transfer because it is no longer wanted.
    ///
    /// # Errors
    /// The link is over, and the transfer with it.
    pub fn cancel(&self, transfer: TransferId, why: &str) -> Result<(), LinkOver> {
        self.command(Command::Cancel(transfer, why.to_owned()))
    }

    /// Ends a transfer because this side can't go on with it, such as on a segment that the merge refuses.
    ///
    /// # Errors
    /// The link is over, and the transfer with it.
    pub fn fail(&self, transfer: TransferId, reason: Reason) -> Result<(), LinkOver> {
        self.command(Command::Fail(transfer, reason))
    }

    /// The link's figures, some hundredths of a second old at most while it is busy.
    pub fn stats(&self) -> LinkStats<ReceiverStats> {
        *self.stats.borrow()
    }

    /// The same for whoever only looks: it does not keep the link up.
    pub fn watch_stats(&self) -> Watched<ReceiverStats> {
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

impl ReceiverEvents {
    /// The next event; `None` after [`ReceiverEvent::Broken`], or once the link has been shut down.
    pub async fn next(&mut self) -> Option<ReceiverEvent> {
        self.events.recv().await
    }

    /// The same for a thread outside of the runtime.
    pub fn next_blocking(&mut self) -> Option<ReceiverEvent> {
        self.events.blocking_recv()
    }
}

/// The receiver with its buffers.
#[derive(Debug)]
pub(crate) struct Receiving {
    machine: Receiver,
    /// The plans and incomplete segments of accepted transfers.
    transfers: HashMap<TransferId, Buffers>,
    spare: Spare,
    /// Events that the application hasn't got yet.
    gathered: Vec<ReceiverEvent>,
    events: mpsc::UnboundedSender<ReceiverEvent>,
    commands: mpsc::WeakUnboundedSender<Command>,
}

#[derive(Debug)]
struct Buffers {
    plan: Arc<TransferPlan>,
    segments: HashMap<(UnitIndex, SegmentIndex), Vec<u8>>,
}

impl Receiving {
    pub(crate) fn new(
        machine: Receiver,
        events: mpsc::UnboundedSender<ReceiverEvent>,
        commands: mpsc::WeakUnboundedSender<Command>,
    ) -> Self {
        Self {
            machine,
            transfers: HashMap::new(),
            spare: Spare::default(),
            gathered: Vec::new(),
            events,
            commands,
        }
    }

    fn accept(&mut self, transfer: TransferId, plan: Arc<TransferPlan>, now: Timestamp) {
        match self.machine.accept(transfer, Arc::clone(&plan), now) {
            Ok(()) => {
                let segments = HashMap::new();
                self.transfers.insert(transfer, Buffers { plan, segments });
            }
            // It ended while the answer was on its way here: an event has said so.
            Err(AcceptError::NotOffered(_)) => {}
            Err(error) => {
                let why = error.to_string();
                self.machine.reject(transfer, &why, now);
                let reason = Reason::new(Code::Rejected, &why);
                self.gathered.push(ReceiverEvent::Failed(transfer, reason));
            }
        }
    }

    /// Takes a complete segment's bytes out of its buffer. An empty segment never had one.
    fn take(
        &mut self,
        transfer: TransferId,
        unit: UnitIndex,
        segment: SegmentIndex,
    ) -> SegmentBytes {
        let Some(buffers) = self.transfers.get_mut(&transfer) else {
            return SegmentBytes::default();
        };
        let bytes = buffers
            .segments
            .remove(&(unit, segment))
            .unwrap_or_default();
        match buffers.plan.priority(segment) {
            Some(priority) => SegmentBytes::new(bytes, priority, self.commands.clone()),
            None => SegmentBytes::default(),
        }
    }

    fn translate(&mut self, event: Event) -> ReceiverEvent {
        match event {
            Event::Offered {
                transfer,
                descriptor,
                deadline,
            } => ReceiverEvent::Offered {
                transfer,
                descriptor,
                deadline,
            },
            Event::SegmentComplete {
                transfer,
                unit,
                segment,
                len: _,
                checksum,
            } => ReceiverEvent::SegmentComplete {
                transfer,
                unit,
                segment,
                bytes: self.take(transfer, unit, segment),
                checksum,
            },
            Event::LevelComplete { transfer, level } => {
                ReceiverEvent::LevelComplete { transfer, level }
            }
            Event::Complete(transfer) => {
                self.transfers.remove(&transfer);
                ReceiverEvent::Complete(transfer)
            }
            Event::Failed(transfer, reason) => {
                self.transfers.remove(&transfer);
                ReceiverEvent::Failed(transfer, reason)
            }
            Event::Cancelled(transfer, reason) => {
                self.transfers.remove(&transfer);
                ReceiverEvent::Cancelled(transfer, reason)
            }
            Event::Broken(reason) => ReceiverEvent::Broken(reason),
        }
    }
}

impl Side for Receiving {
    type Command = Command;
    type Counts = ReceiverStats;

    fn command(&mut self, command: Command, now: Timestamp) {
        match command {
            Command::Accept(transfer, plan) => self.accept(transfer, plan, now),
            Command::Reject(transfer, why) => self.machine.reject(transfer, &why, now),
            Command::Cancel(transfer, why) => self.machine.cancel(transfer, &why, now),
            Command::Fail(transfer, reason) => self.machine.fail(transfer, reason, now),
            Command::Release(priority, bytes, memory) => {
                self.machine.release(priority, bytes, now);
                memory.into_iter().for_each(|memory| self.spare.put(memory));
            }
        }
    }

    fn shut_down(&mut self, now: Timestamp) {
        self.machine.shut_down(now);
    }

    fn handle_packet(&mut self, on: Priority, packet: &Packet<'_>, now: Timestamp) {
        self.machine.handle_frame(on, packet, now);
    }

    fn handle_activity(&mut self, on: Priority, now: Timestamp) {
        self.machine.handle_activity(on, now);
    }

    fn handle_disconnected(&mut self, reason: Reason, now: Timestamp) {
        self.machine.handle_disconnected(reason, now);
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        self.machine.handle_timeout(now);
    }

    fn chunk_begins(&mut self, on: Priority, header: &ChunkHeader, now: Timestamp) -> bool {
        let Ok(placement) = self.machine.handle_chunk_header(on, header, now) else {
            return false;
        };
        let Extent {
            transfer,
            unit,
            segment,
            ..
        } = placement.extent;
        if placement.first
            && let Some(buffers) = self.transfers.get_mut(&transfer)
        {
            let buffer = self.spare.take(placement.segment_len as usize);
            buffers.segments.insert((unit, segment), buffer);
        }
        true
    }

    fn slot(&mut self, header: &ChunkHeader) -> Option<&mut [u8]> {
        let extent = &header.extent;
        let buffers = self.transfers.get_mut(&extent.transfer)?;
        let buffer = buffers.segments.get_mut(&(extent.unit, extent.segment))?;
        buffer.get_mut(extent.offset as usize..usize::try_from(extent.end()).ok()?)
    }

    fn chunk_done(&mut self, on: Priority, header: &ChunkHeader, intact: bool, now: Timestamp) {
        self.machine.handle_chunk_done(on, header, intact, now);
    }

    fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Outgoing> {
        self.machine.poll_transmit(on, now).map(Outgoing::Frame)
    }

    fn chunk_written(&mut self, _header: &ChunkHeader) {}

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.machine.poll_timeout()
    }

    fn gather_events(&mut self) -> bool {
        while let Some(event) = self.machine.poll_event() {
            let event = self.translate(event);
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

    fn counts(&self) -> ReceiverStats {
        self.machine.stats()
    }
}
