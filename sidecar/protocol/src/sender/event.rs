//! What goes in and out of a sender.

use alloc::borrow::Cow;
use alloc::sync::Arc;

use lynx_units::{Bytes, Timestamp, TransferId};

use crate::wire::{ChunkHeader, Packet};
use crate::{Reason, TransferPlan};

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
    /// Bytes of payload handed out to be written, by [`Priority::index`](lynx_units::Priority::index).
    pub sent: [Bytes; 2],
    /// Bytes of payload that the receiver has acknowledged, by [`Priority::index`](lynx_units::Priority::index).
    pub acknowledged: [Bytes; 2],
    /// Chunks handed out, by [`Priority::index`](lynx_units::Priority::index).
    pub chunks: [u64; 2],
    /// Frames of an older epoch, dropped.
    pub stale_frames: u64,
    /// Frames about transfers that are over or were never opened, dropped.
    pub late_frames: u64,
}
