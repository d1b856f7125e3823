//! The side that wants the KV: where bytes go, what is whole, and how much more may come.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use crate::credit::BookFull;
use crate::wire::{ChunkHeader, Packet};
use crate::{CreditBook, Extent, LinkEstimate, Reason, TransferPlan};

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
    epoch: Epoch,
}

/// How much a receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Most bytes granted and not yet released, by [`Priority::index`]. Each at least
    /// [`ReceiverConfig::MIN_WINDOW`], and at least as long as the longest segment of its priority in any plan.
    pub window: [Bytes; 2],
}

impl ReceiverConfig {
    /// Smallest window.
    pub const MIN_WINDOW: Bytes = Bytes::from_kib(1024);
}

impl Default for ReceiverConfig {
    /// 64 MiB for each priority.
    fn default() -> Self {
        Self {
            window: [Bytes::from_mib(64); 2],
        }
    }
}

/// Where a chunk's payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The bytes.
    pub extent: Extent,
    /// Length of the whole segment, in bytes: what its buffer needs.
    pub segment_len: u32,
    /// Whether it is the first chunk of its segment, so that there is no buffer yet.
    pub first: bool,
}

/// Why a chunk's payload is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Discard {
    /// Said in an older epoch.
    #[error("the chunk is of an older epoch")]
    Stale,
    /// The transfer is over, was never accepted, or never offered.
    #[error("the chunk's transfer is over or was never accepted")]
    Unknown,
    /// Every byte of it is here already.
    #[error("the chunk is a duplicate")]
    Duplicate,
    /// It breaks the protocol; its transfer has failed, or the link is over.
    #[error("the chunk breaks the protocol")]
    Violation,
}

/// What the application should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer offers a transfer: answer with [`Receiver::accept`] or [`Receiver::reject`].
    Offered {
        /// The transfer.
        transfer: TransferId,
        /// What the plan is derived from.
        descriptor: Vec<u8>,
        /// When it fails unless it is complete.
        deadline: Timestamp,
    },
    /// Every byte of a segment is in its buffer.
    SegmentComplete {
        /// The transfer.
        transfer: TransferId,
        /// The unit.
        unit: UnitIndex,
        /// The segment.
        segment: SegmentIndex,
        /// Its length, in bytes. For an empty segment there was no placement with bytes to read.
        len: u32,
        /// The codec's checksum, to be checked by its merge.
        checksum: u64,
    },
    /// All units have all segments of this level and of those below it. Each level comes once, in order.
    LevelComplete {
        /// The transfer.
        transfer: TransferId,
        /// The level; 0 is the anchor.
        level: u8,
    },
    /// Everything is here. The transfer is over.
    Complete(TransferId),
    /// The transfer could not be finished. It is over: drop its buffers.
    Failed(TransferId, Reason),
    /// One side's application cancelled it. It is over: drop its buffers.
    Cancelled(TransferId, Reason),
    /// The link is over: close both connections. Every transfer has failed in an event before this one.
    Broken(Reason),
}

/// What a receiver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Bytes of payload received, by [`Priority::index`], discarded ones too.
    pub received: [Bytes; 2],
    /// Chunks received, by [`Priority::index`], discarded ones too.
    pub chunks: [u64; 2],
    /// Bytes of payload discarded for any reason.
    pub discarded: Bytes,
    /// Chunks discarded as duplicates.
    pub duplicates: u64,
    /// Chunks discarded because their transfer was over, or of an older epoch.
    pub late_chunks: u64,
    /// Chunks whose payload was corrupt.
    pub corrupt: u64,
    /// Frames of an older epoch, dropped.
    pub stale_frames: u64,
    /// Frames about transfers that are over or were never offered, dropped.
    pub late_frames: u64,
    /// How long residual credit was withheld for other links' anchors, in all.
    pub withheld: Duration,
    /// How often residual credit was granted although another link's anchor was arriving, because it had been withheld
    /// for too long.
    pub starved: u64,
}

/// Why an offer can't be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// Not an open offer.
    #[error("transfer {0} is not on offer: it is over, or was answered before")]
    NotOffered(TransferId),
    /// A segment of the plan is longer than the window of its priority, so it could never arrive.
    #[error(
        "a segment may have {segment}, and the receive window is {window}: raise the window or make units smaller"
    )]
    Window {
        /// Longest segment of the plan.
        segment: Bytes,
        /// The window of its priority.
        window: Bytes,
    },
}

impl Receiver {
    /// The receiver of a link whose two connections are up (both sides have said Hello) at `now`.
    pub fn new(
        epoch: Epoch,
        _config: ReceiverConfig,
        _book: &Arc<CreditBook>,
        _now: Timestamp,
    ) -> Result<Self, BookFull> {
        Ok(Self { epoch })
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the link can carry, as far as this side sees it.
    pub fn estimate(&self) -> LinkEstimate {
        LinkEstimate::default()
    }

    /// What has been counted so far.
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats::default()
    }

    /// Whether the link is over: nothing is transmitted any more.
    pub fn is_over(&self) -> bool {
        false
    }

    /// Takes an offer. On an error the offer still stands; reject it.
    pub fn accept(
        &mut self,
        transfer: TransferId,
        _plan: Arc<TransferPlan>,
        _now: Timestamp,
    ) -> Result<(), AcceptError> {
        Err(AcceptError::NotOffered(transfer))
    }

    /// Does not take an offer; nothing where it is over already. There is no further event about it.
    pub fn reject(&mut self, _transfer: TransferId, _why: &str, _now: Timestamp) {}

    /// Ends a transfer because the application no longer wants it; nothing where it is over already.
    pub fn cancel(&mut self, _transfer: TransferId, _why: &str, _now: Timestamp) {}

    /// Ends a transfer because the application could not go on with it, a merge error say; nothing where it is over.
    pub fn fail(&mut self, _transfer: TransferId, _reason: Reason, _now: Timestamp) {}

    /// The application has consumed `bytes` of complete segments of a priority: as many more may come.
    pub fn release(&mut self, _priority: Priority, _bytes: Bytes, _now: Timestamp) {}

    /// Ends every transfer; the driver then flushes what [`poll_transmit`](Self::poll_transmit) still gives and closes.
    pub fn shut_down(&mut self, _now: Timestamp) {}

    /// A frame other than a chunk arrived on the connection for `on`.
    pub fn handle_frame(&mut self, _on: Priority, _packet: &Packet<'_>, _now: Timestamp) {}

    /// A chunk's header arrived on the connection for `on`; its payload has not been read yet.
    pub fn handle_chunk_header(
        &mut self,
        _on: Priority,
        _header: &ChunkHeader,
        _now: Timestamp,
    ) -> Result<Placement, Discard> {
        Err(Discard::Unknown)
    }

    /// The payload of a chunk that had a [`Placement`] has been read; `intact` says whether it had the header's CRC32C.
    pub fn handle_chunk_done(
        &mut self,
        _on: Priority,
        _header: &ChunkHeader,
        _intact: bool,
        _now: Timestamp,
    ) {
    }

    /// Bytes arrived on the connection for `on`, be they a whole frame or not: it is alive.
    pub fn handle_activity(&mut self, _on: Priority, _now: Timestamp) {}

    /// A connection was lost, or its stream is no longer a sequence of frames: the link is over.
    pub fn handle_disconnected(&mut self, _reason: Reason, _now: Timestamp) {}

    /// The moment that [`poll_timeout`](Self::poll_timeout) gave has come.
    pub fn handle_timeout(&mut self, _now: Timestamp) {}

    /// The next frame to write to the connection for `on`; `None` until something changes. A receiver sends no chunks.
    pub fn poll_transmit(&mut self, _on: Priority, _now: Timestamp) -> Option<Packet<'static>> {
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called; `None` once the link is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
