//! What the two sides say to each other.

use alloc::borrow::Cow;
use core::time::Duration;

use lynx_units::{Bytes, Epoch, Priority, TransferId};

use crate::{Extent, Reason};

/// Length of a chunk's body, in bytes: the fields of [`ChunkHeader`] without its epoch.
pub(super) const CHUNK_BODY_LEN: usize = 40;

/// A frame and the epoch in which it was said. Frames of an older epoch are dropped and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The life of the link that the frame belongs to.
    pub epoch: Epoch,
    /// What is said.
    pub frame: Frame<'a>,
}

/// One frame. Those with texts borrow from the bytes they were decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// First frame of the dialling side, on each connection.
    Hello(Hello<'a>),
    /// The dialled side takes the connection; its own peer information.
    HelloAck(Cow<'a, [u8]>),
    /// The dialled side does not take the connection, and says what differs.
    Refuse(Reason),
    /// The sender offers a transfer.
    Open(Open<'a>),
    /// The receiver takes an offer: chunks may follow.
    Accept(TransferId),
    /// The receiver does not take an offer.
    Reject(TransferId, Reason),
    /// Part of a segment; `len` bytes of payload follow this frame. Goes to
    /// [`Receiver::handle_chunk_header`](crate::Receiver::handle_chunk_header), not to `handle_frame`.
    Chunk(ChunkHeader),
    /// The receiver lets the sender send more.
    Credit(Credit),
    /// The receiver says what has arrived.
    Ack(Ack),
    /// A connection is alive.
    Heartbeat(Heartbeat),
    /// One side no longer wants the transfer.
    Cancel(TransferId, Reason),
    /// One side could not go on with the transfer.
    Failed(TransferId, Reason),
    /// The receiver has every byte of the transfer.
    Done(TransferId),
}

impl Frame<'_> {
    /// Whether it is a heartbeat that asks for an echo.
    pub(crate) fn is_ping(&self) -> bool {
        matches!(self, Self::Heartbeat(beat) if beat.stamp != 0)
    }
}

/// The dialling side introduces itself on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Version of the frames, [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
    pub version: u16,
    /// What this connection carries.
    pub priority: Priority,
    /// A number that the dialling side drew at random when it started. The two connections of a link have the same one
    /// and the same epoch: so the dialled side pairs them, also behind a relay or an address translation.
    pub link: u64,
    /// Codec version, profile, model fingerprint, layout, ...: opaque here, compared by the application.
    pub info: Cow<'a, [u8]>,
}

/// An offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// The transfer's name on this link, not used before in this epoch.
    pub transfer: TransferId,
    /// Time left until its deadline: moments of two machines can't be compared.
    pub remaining: Duration,
    /// What the application derives the plan from: opaque here.
    pub descriptor: Cow<'a, [u8]>,
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The life of the link it belongs to.
    pub epoch: Epoch,
    /// Which bytes follow.
    pub extent: Extent,
    /// Whether the sender had nothing to send just before: the time up to this chunk says nothing about the wire.
    pub after_pause: bool,
    /// Exact length of the whole segment, in bytes.
    pub segment_len: u32,
    /// Checksum of the whole segment, computed by the codec's split and checked by its merge.
    pub segment_checksum: u64,
    /// CRC32C of the bytes that follow. A [`Transmit`](crate::sender::Transmit) has zero here: the driver puts it in.
    pub payload_crc: u32,
}

/// Cumulative limits, by [`Priority::index`]: how many bytes of payload the sender may have sent in this epoch in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// The limits.
    pub limit: [Bytes; 2],
}

/// What has arrived, for the sender's link estimate and its bytes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Bytes of payload received in this epoch, by [`Priority::index`]; discarded ones count too.
    pub received: [Bytes; 2],
    /// The receiver's clock, from an origin that is its own affair. Only differences are used, so that jitter on the way
    /// of the acknowledgements does not enter the rate.
    pub clock: Duration,
}

/// A sign of life, and a round trip where both stamps are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// An opaque number of whoever asks for an echo; zero asks for none.
    pub stamp: u64,
    /// The stamp that this answers; zero answers none.
    pub echo: u64,
}
