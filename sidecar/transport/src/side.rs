//! What the driver of a link needs of either side of it.

use bytes::Bytes;
use lynx_protocol::wire::{ChunkHeader, Packet};
use lynx_protocol::{LinkEstimate, Reason};
use lynx_units::{Priority, Timestamp};

/// Something to write.
pub(crate) enum Outgoing {
    /// A whole frame.
    Frame(Packet<'static>),
    /// A chunk and its payload.
    Chunk(ChunkHeader, Bytes),
}

/// A protocol machine together with the bytes that it only names: [`Sending`](crate::sending::Sending) or
/// [`Receiving`](crate::receiving::Receiving). The methods are those of the machines, whose documentation has the contract.
pub(crate) trait Side {
    /// What the application can ask for.
    type Command: Send + 'static;
    /// What the machine counts.
    type Counts: Copy + std::fmt::Debug + Default + Send + Sync + 'static;

    fn command(&mut self, command: Self::Command, now: Timestamp);
    fn shut_down(&mut self, now: Timestamp);

    fn handle_packet(&mut self, on: Priority, packet: &Packet<'_>, now: Timestamp);
    fn handle_activity(&mut self, on: Priority, now: Timestamp);
    fn handle_disconnected(&mut self, reason: Reason, now: Timestamp);
    fn handle_timeout(&mut self, now: Timestamp);

    /// A chunk's header has been read; whether its payload is wanted.
    fn chunk_begins(&mut self, on: Priority, header: &ChunkHeader, now: Timestamp) -> bool;
    /// Where the payload of a wanted chunk goes, exactly as long as the chunk; `None` once it is no longer wanted.
    fn slot(&mut self, header: &ChunkHeader) -> Option<&mut [u8]>;
    /// The payload of a wanted chunk has been read.
    fn chunk_done(&mut self, on: Priority, header: &ChunkHeader, intact: bool, now: Timestamp);

    fn poll_transmit(&mut self, on: Priority, now: Timestamp) -> Option<Outgoing>;
    /// Every byte of a chunk has been given to the system.
    fn chunk_written(&mut self, header: &ChunkHeader);
    fn poll_timeout(&self) -> Option<Timestamp>;
    /// Takes the machine's events; whether there are any for the application.
    fn gather_events(&mut self) -> bool;
    /// Hands them to the application. In two steps, so that the figures that it sees are not older than an event.
    fn send_events(&mut self);

    fn is_over(&self) -> bool;
    fn estimate(&self) -> LinkEstimate;
    fn counts(&self) -> Self::Counts;
}
