//! Bytes to frames.

use alloc::borrow::Cow;
use core::time::Duration;

use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, TransferId, UnitIndex};

use super::crc::crc32c;
use super::encode::kind;
use super::frame::CHUNK_BODY_LEN;
use super::{
    Ack, ChunkHeader, Credit, FRAME_MARK, Frame, HEADER_LEN, HELLO_MAGIC, Heartbeat, Hello, Open,
    Packet,
};
use crate::limits::{MAX_CHUNK, MAX_DESCRIPTOR, MAX_PEER_INFO, MAX_REASON, MAX_SEGMENT};
use crate::{Code, Extent, Reason};

/// What the bytes at hand are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The start of a frame. Nothing is wrong: come back when there are at least this many bytes in all.
    Incomplete {
        /// A lower bound of the frame's length, larger than what was given.
        at_least: usize,
    },
    /// A whole frame, which took the first `len` bytes.
    Packet {
        /// The frame.
        packet: Packet<'a>,
        /// Its length, in bytes, without a chunk's payload.
        len: usize,
    },
}

/// Why bytes are no frame. The stream can't be trusted any more: close its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not the mark that every frame starts with.
    #[error(
        "byte {0:#04x} where a frame should start: the peer speaks something else, or bytes were lost"
    )]
    NoFrame(u8),
    /// A frame type that this version does not know.
    #[error("frame type {0} is unknown: the peer is newer, or the bytes are corrupt")]
    UnknownKind(u8),
    /// A frame longer than its type allows.
    #[error("a frame of type {kind} claims {len} bytes, more than the {max} it may have")]
    TooLong {
        /// The type.
        kind: u8,
        /// The length that the header says.
        len: u32,
        /// What the type may have.
        max: usize,
    },
    /// A body shorter than its fixed fields, or longer where no text follows them.
    #[error("a frame of type {0} has a body of the wrong length")]
    WrongLength(u8),
    /// Header or body are not what was sent.
    #[error("checksum of a frame of type {0} does not match: the path corrupts bytes")]
    Checksum(u8),
    /// A Hello without its magic.
    #[error("this is no Lynx peer: its Hello has no LYNX in it")]
    NoLynx,
    /// A value outside its range.
    #[error("a frame of type {kind} has an impossible {field}")]
    Value {
        /// The type.
        kind: u8,
        /// The field.
        field: &'static str,
    },
}

/// Reads the frame that `bytes` start with.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, WireError> {
    match bytes.first() {
        Some(&mark) if mark != FRAME_MARK => return Err(WireError::NoFrame(mark)),
        _ => {}
    }
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(Decoded::Incomplete {
            at_least: HEADER_LEN,
        });
    };
    let mut fields = Fields(&header[1..]);
    let kind = fields.u8();
    let _reserved = fields.u16();
    let epoch = Epoch(fields.u32());
    let claimed = fields.u32();
    let crc = fields.u32();
    let max = longest(kind).ok_or(WireError::UnknownKind(kind))?;
    let body_len = claimed as usize;
    if body_len > max {
        let len = claimed;
        return Err(WireError::TooLong { kind, len, max });
    }
    let len = HEADER_LEN + body_len;
    let Some(body) = rest.get(..body_len) else {
        return Ok(Decoded::Incomplete { at_least: len });
    };
    if crc32c(&[&header[..12], body]) != crc {
        return Err(WireError::Checksum(kind));
    }
    if body_len < shortest(kind) {
        return Err(WireError::WrongLength(kind));
    }
    let frame = parse(kind, epoch, Fields(body))?;
    let packet = Packet { epoch, frame };
    Ok(Decoded::Packet { packet, len })
}

/// Length of the fixed fields of a body.
const fn shortest(kind: u8) -> usize {
    match kind {
        kind::REFUSE => 2,
        kind::ACCEPT | kind::DONE => 8,
        kind::REJECT | kind::CANCEL | kind::FAILED => 10,
        kind::HELLO | kind::OPEN | kind::CREDIT | kind::HEARTBEAT => 16,
        kind::ACK => 24,
        kind::CHUNK => CHUNK_BODY_LEN,
        _ => 0,
    }
}

/// The most bytes a body may have; `None` for an unknown type.
const fn longest(kind: u8) -> Option<usize> {
    let text = match kind {
        kind::HELLO | kind::HELLO_ACK => MAX_PEER_INFO,
        kind::OPEN => MAX_DESCRIPTOR,
        kind::REFUSE | kind::REJECT | kind::CANCEL | kind::FAILED => MAX_REASON,
        kind::ACCEPT | kind::CHUNK | kind::CREDIT | kind::ACK | kind::HEARTBEAT | kind::DONE => 0,
        _ => return None,
    };
    Some(shortest(kind) + text)
}

fn parse<'a>(kind: u8, epoch: Epoch, mut fields: Fields<'a>) -> Result<Frame<'a>, WireError> {
    Ok(match kind {
        kind::HELLO => Frame::Hello(hello(fields)?),
        kind::HELLO_ACK => Frame::HelloAck(Cow::Borrowed(fields.0)),
        kind::REFUSE => Frame::Refuse(fields.reason(kind)?),
        kind::OPEN => Frame::Open(Open {
            transfer: fields.transfer(),
            remaining: Duration::from_micros(fields.u64()),
            descriptor: Cow::Borrowed(fields.0),
        }),
        kind::ACCEPT => Frame::Accept(fields.transfer()),
        kind::REJECT => Frame::Reject(fields.transfer(), fields.reason(kind)?),
        kind::CHUNK => Frame::Chunk(chunk(epoch, fields)?),
        kind::CREDIT => Frame::Credit(Credit {
            limit: [fields.bytes(), fields.bytes()],
        }),
        kind::ACK => Frame::Ack(Ack {
            received: [fields.bytes(), fields.bytes()],
            clock: Duration::from_micros(fields.u64()),
        }),
        kind::HEARTBEAT => Frame::Heartbeat(Heartbeat {
            stamp: fields.u64(),
            echo: fields.u64(),
        }),
        kind::CANCEL => Frame::Cancel(fields.transfer(), fields.reason(kind)?),
        kind::FAILED => Frame::Failed(fields.transfer(), fields.reason(kind)?),
        kind::DONE => Frame::Done(fields.transfer()),
        other => return Err(WireError::UnknownKind(other)),
    })
}

fn hello(mut fields: Fields<'_>) -> Result<Hello<'_>, WireError> {
    if fields.take::<4>() != HELLO_MAGIC {
        return Err(WireError::NoLynx);
    }
    let version = fields.u16();
    let priority = Priority::from_index(usize::from(fields.u8())).ok_or(WireError::Value {
        kind: kind::HELLO,
        field: "priority",
    })?;
    let _reserved = fields.u8();
    Ok(Hello {
        version,
        priority,
        link: fields.u64(),
        info: Cow::Borrowed(fields.0),
    })
}

fn chunk(epoch: Epoch, mut fields: Fields<'_>) -> Result<ChunkHeader, WireError> {
    let transfer = fields.transfer();
    let unit = UnitIndex(fields.u32());
    let segment = SegmentIndex(fields.u16());
    let flags = fields.u16();
    let offset = fields.u32();
    let len = fields.u32();
    let segment_len = fields.u32();
    let payload_crc = fields.u32();
    let segment_checksum = fields.u64();
    let extent = Extent {
        transfer,
        unit,
        segment,
        offset,
        len,
    };
    let wrong = |field| WireError::Value {
        kind: kind::CHUNK,
        field,
    };
    if segment_len > MAX_SEGMENT {
        return Err(wrong("segment length"));
    }
    if len > MAX_CHUNK || (len == 0) != (segment_len == 0) {
        return Err(wrong("length"));
    }
    if extent.end() > u64::from(segment_len) {
        return Err(wrong("offset"));
    }
    Ok(ChunkHeader {
        epoch,
        extent,
        after_pause: flags & 1 != 0,
        segment_len,
        segment_checksum,
        payload_crc,
    })
}

/// What is left of a body. The fixed fields are there: [`decode`] has compared the length with [`shortest`]; zeros stand in
/// for what is not, so that no read can panic.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => [0; N],
        }
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn bytes(&mut self) -> Bytes {
        Bytes::new(self.u64())
    }

    fn transfer(&mut self) -> TransferId {
        TransferId(self.u64())
    }

    /// A code, and text to the end of the body.
    fn reason(&mut self, kind: u8) -> Result<Reason, WireError> {
        let code = Code::from_number(self.u16());
        let text = core::str::from_utf8(self.0).map_err(|_| WireError::Value {
            kind,
            field: "reason text: not UTF-8",
        })?;
        Ok(Reason::new(code, text))
    }
}
