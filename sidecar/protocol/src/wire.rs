//! Frames to bytes and back, over slices.
//!
//! All numbers are little-endian at fixed places; nothing is negotiated, compressed or optional, so that a frame is read
//! without a branch on its past. Decoding allocates nothing, and never panics: a frame that is not all there yet is
//! [`Decoded::Incomplete`], an ordinary outcome; a frame that is wrong is a [`WireError`], after which the stream can't be
//! trusted and its connection is closed. Payload is never here: a chunk's header says how many bytes follow it, and the
//! driver reads them to where the receiver says. Why not a schema language: the hot frame is 56 bytes of fixed layout that
//! a NIC or a debugger has to find by offset too. The layout is in docs/wire-format.md.

mod crc;
mod decode;
mod encode;
mod frame;

pub use crc::crc32c;
pub use decode::{Decoded, WireError, decode};
pub use encode::EncodeError;
pub use frame::{Ack, ChunkHeader, Credit, Frame, Heartbeat, Hello, Open, Packet};

/// Length of the header that every frame starts with, in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of a chunk's frame without the payload that follows it, in bytes.
pub const CHUNK_FRAME_LEN: usize = HEADER_LEN + frame::CHUNK_BODY_LEN;
/// First byte of every frame.
pub const FRAME_MARK: u8 = 0xA7;
/// First bytes of a Hello's body.
pub const HELLO_MAGIC: [u8; 4] = *b"LYNX";

#[cfg(test)]
mod tests;
