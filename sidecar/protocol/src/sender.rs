//! The side that has the KV: what to send next, and what became of it.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lynx_units::{Bytes, Epoch, Priority, Timestamp, TransferId, UnitIndex};

use crate::wire::{ChunkHeader, EncodeError, Packet};
use crate::{LinkEstimate, Reason, TransferPlan};

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
    epoch: Epoch,
}

/// An offer to make.
#[derive(Clone, Debug)]
pub struct OpenTransfer {
    /// The transfer's name on this link: never used before in this epoch.
    pub transfer: TransferId,
    /// What the receiver's application derives the plan from, at most
    /// [`MAX_DESCRIPTOR`](crate::limits::MAX_DESCRIPTOR) bytes.
    pub descriptor: Cow<'static, [u8]>,
    /// The plan.
    pub plan: Arc<TransferPlan>,
    /// When the transfer fails unless it is complete.
    pub deadline: Timestamp,
}

/// What the codec says about one segment when its unit is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Exact length, in bytes: at most the plan's bound; may be zero.
    pub len: u32,
    /// The codec's checksum of the whole segment, opaque here.
    pub checksum: u64,
}

/// Something to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A whole frame: [`Packet::encode`] it.
    Frame(Packet<'static>),
    /// A chunk: compute the CRC32C of the extent's payload, write [`ChunkHeader::encode`] and then the payload. Once a
    /// chunk that ends its segment is written, nothing asks for that segment's payload again.
    Chunk(ChunkHeader),
}

/// What became of a transfer, for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The receiver took the offer; published units are being sent.
    Accepted(TransferId),
    /// The receiver has every byte. The transfer is over.
    Complete(TransferId),
    /// The transfer could not be finished (or was not accepted: [`Code::Rejected`](crate::Code::Rejected)). It is over.
    Failed(TransferId, Reason),
    /// One side's application cancelled it. It is over.
    Cancelled(TransferId, Reason),
    /// The link is over: close both connections. Every transfer has failed in an event before this one.
    Broken(Reason),
}

/// What a sender counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Bytes of payload handed out to be written, by [`Priority::index`].
    pub sent: [Bytes; 2],
    /// Bytes of payload that the receiver has acknowledged, by [`Priority::index`].
    pub acknowledged: [Bytes; 2],
    /// Chunks handed out, by [`Priority::index`].
    pub chunks: [u64; 2],
    /// Frames of an older epoch, dropped.
    pub stale_frames: u64,
    /// Frames about transfers that are over or were never opened, dropped.
    pub late_frames: u64,
}

/// Why an offer can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The link is over.
    #[error("the link is over: open the transfer on a new one")]
    Over,
    /// The name was used before.
    #[error(
        "transfer {0} was opened before in this epoch: give every transfer and every retry a new number"
    )]
    Reused(TransferId),
    /// Too many transfers.
    #[error("{0} transfers are open on this link, the most there may be: wait until one ends")]
    TooMany(usize),
    /// The deadline is now or earlier.
    #[error("the deadline of transfer {0} has passed already")]
    Late(TransferId),
    /// The descriptor is too long.
    #[error("transfer {0} can't be offered")]
    Descriptor(TransferId, #[source] EncodeError),
}

/// Why a unit can't be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No such transfer, or no longer.
    #[error("transfer {0} is over or was never opened: drop its units")]
    Unknown(TransferId),
    /// Not a unit of the plan.
    #[error("unit {0} is not in the plan")]
    Unit(UnitIndex),
    /// Published before.
    #[error("unit {0} was published before")]
    Twice(UnitIndex),
    /// Not as many segments as the plan says.
    #[error("a unit was published with {given} segments, and its plan has {planned}")]
    Segments {
        /// Segments given.
        given: usize,
        /// Segments in the plan.
        planned: usize,
    },
    /// A segment is longer than the plan allows.
    #[error("a segment has {len} bytes, and its plan allows {bound}: the codec's bound is wrong")]
    Bound {
        /// Bytes given.
        len: u32,
        /// Bytes allowed.
        bound: u32,
    },
}

impl Sender {
    /// The sender of a link whose two connections are up (both sides have said Hello) at `now`.
    pub fn new(epoch: Epoch, now: Timestamp) -> Self {
        let _ = now;
        Self { epoch }
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the link can carry.
    pub fn estimate(&self) -> LinkEstimate {
        LinkEstimate::default()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> SenderStats {
        SenderStats::default()
    }

    /// Whether the link is over: nothing is transmitted any more.
    pub fn is_over(&self) -> bool {
        false
    }

    /// Offers a transfer. Units may be published before it is accepted; they are sent afterwards.
    pub fn open(&mut self, _open: OpenTransfer, _now: Timestamp) -> Result<(), OpenError> {
        Err(OpenError::Over)
    }

    /// Hands over a unit whose segments are ready to be sent, one [`Segment`] per segment of the plan. Units may come in
    /// any order, each once.
    pub fn publish(
        &mut self,
        transfer: TransferId,
        _unit: UnitIndex,
        _segments: &[Segment],
        _now: Timestamp,
    ) -> Result<(), PublishError> {
        Err(PublishError::Unknown(transfer))
    }

    /// Ends a transfer because the application no longer wants it; nothing where it is over already.
    pub fn cancel(&mut self, _transfer: TransferId, _why: &str, _now: Timestamp) {}

    /// Ends a transfer because the application could not go on with it; nothing where it is over already.
    pub fn fail(&mut self, _transfer: TransferId, _reason: Reason, _now: Timestamp) {}

    /// Ends every transfer; the driver then flushes what [`poll_transmit`](Self::poll_transmit) still gives and closes.
    pub fn shut_down(&mut self, _now: Timestamp) {}

    /// A frame arrived on the connection for `on`.
    pub fn handle_frame(&mut self, _on: Priority, _packet: &Packet<'_>, _now: Timestamp) {}

    /// Bytes arrived on the connection for `on`, be they a whole frame or not: it is alive.
    pub fn handle_activity(&mut self, _on: Priority, _now: Timestamp) {}

    /// A connection was lost, or its stream is no longer a sequence of frames: the link is over.
    pub fn handle_disconnected(&mut self, _reason: Reason, _now: Timestamp) {}

    /// The moment that [`poll_timeout`](Self::poll_timeout) gave has come.
    pub fn handle_timeout(&mut self, _now: Timestamp) {}

    /// The next thing to write to the connection for `on`; `None` until something changes.
    pub fn poll_transmit(&mut self, _on: Priority, _now: Timestamp) -> Option<Transmit> {
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` once the link is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let _: Option<(Vec<u8>, Duration)> = None;
        None
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
