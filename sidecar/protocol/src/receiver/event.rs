//! What goes in and out of a receiver.

use alloc::vec::Vec;
use core::time::Duration;

use lynx_units::{Bytes, SegmentIndex, Timestamp, TransferId, UnitIndex};

use crate::{Extent, Reason};

/// How much a receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Most bytes granted and not yet released, by [`Priority::index`](lynx_units::Priority::index). Each at least
    /// [`ReceiverConfig::MIN_WINDOW`], and at least as long as the longest segment of its priority in any plan. An
    /// application that holds complete segments until a level is complete needs a window as large as that level.
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
    /// The peer offers a transfer: answer with
    /// [`Receiver::accept`](crate::Receiver::accept) or [`Receiver::reject`](crate::Receiver::reject).
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
    /// Bytes of payload received, by [`Priority::index`](lynx_units::Priority::index), discarded ones too.
    pub received: [Bytes; 2],
    /// Chunks received, by [`Priority::index`](lynx_units::Priority::index), discarded ones too.
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
    /// Credit that the sender was told, by [`Priority::index`](lynx_units::Priority::index): it may have sent as many bytes.
    pub granted: [Bytes; 2],
    /// How long residual credit was withheld for other links' anchors, in all.
    pub withheld: Duration,
    /// How often residual credit was granted although another link's anchor was arriving, because it had been withheld
    /// for too long.
    pub starved: u64,
}
