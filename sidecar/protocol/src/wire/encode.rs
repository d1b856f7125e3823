//! Frames to bytes.

use alloc::vec::Vec;

use lynx_units::Epoch;

use super::crc::crc32c;
use super::frame::CHUNK_BODY_LEN;
use super::{CHUNK_FRAME_LEN, ChunkHeader, FRAME_MARK, Frame, HEADER_LEN, HELLO_MAGIC, Packet};
use crate::Reason;
use crate::limits::{MAX_DESCRIPTOR, MAX_PEER_INFO};

/// Why a frame can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The peer information is too long.
    #[error(
        "the peer information has {0} bytes, and may have {MAX_PEER_INFO}: send hashes instead of texts"
    )]
    PeerInfo(usize),
    /// The descriptor is too long.
    #[error("the descriptor has {0} bytes, and may have {MAX_DESCRIPTOR}: split the transfer")]
    Descriptor(usize),
}

/// The number of a frame's type on the wire.
pub(super) mod kind {
    pub(in crate::wire) const HELLO: u8 = 1;
    pub(in crate::wire) const HELLO_ACK: u8 = 2;
    pub(in crate::wire) const REFUSE: u8 = 3;
    pub(in crate::wire) const OPEN: u8 = 4;
    pub(in crate::wire) const ACCEPT: u8 = 5;
    pub(in crate::wire) const REJECT: u8 = 6;
    pub(in crate::wire) const CHUNK: u8 = 7;
    pub(in crate::wire) const CREDIT: u8 = 8;
    pub(in crate::wire) const ACK: u8 = 9;
    pub(in crate::wire) const HEARTBEAT: u8 = 10;
    pub(in crate::wire) const CANCEL: u8 = 11;
    pub(in crate::wire) const FAILED: u8 = 12;
    pub(in crate::wire) const DONE: u8 = 13;
}

impl Packet<'_> {
    /// Appends the frame's bytes to `out`; on an error, `out` is as it was. A chunk's payload is the caller's to add.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        check_lengths(&self.frame)?;
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        let kind = body(&self.frame, out);
        let (header, body) = out[start..].split_at_mut(HEADER_LEN);
        fill_header(header, kind, self.epoch, body);
        Ok(())
    }
}

impl ChunkHeader {
    /// The frame's bytes; `payload_crc` is the CRC32C of the payload, which only the driver has. Allocates nothing.
    pub fn encode(&self, payload_crc: u32) -> [u8; CHUNK_FRAME_LEN] {
        let mut out = [0; CHUNK_FRAME_LEN];
        let (header, body) = out.split_at_mut(HEADER_LEN);
        body.copy_from_slice(&chunk_body(self, payload_crc));
        fill_header(header, kind::CHUNK, self.epoch, body);
        out
    }
}

fn check_lengths(frame: &Frame<'_>) -> Result<(), EncodeError> {
    match frame {
        Frame::Hello(hello) if hello.info.len() > MAX_PEER_INFO => {
            Err(EncodeError::PeerInfo(hello.info.len()))
        }
        Frame::HelloAck(info) if info.len() > MAX_PEER_INFO => {
            Err(EncodeError::PeerInfo(info.len()))
        }
        Frame::Open(open) if open.descriptor.len() > MAX_DESCRIPTOR => {
            Err(EncodeError::Descriptor(open.descriptor.len()))
        }
        _ => Ok(()),
    }
}

fn fill_header(header: &mut [u8], kind: u8, epoch: Epoch, body: &[u8]) {
    // The longest body is a descriptor's, far below 4 GiB.
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    header[0] = FRAME_MARK;
    header[1] = kind;
    header[2..4].fill(0);
    header[4..8].copy_from_slice(&epoch.0.to_le_bytes());
    header[8..12].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(&[&header[..12], body]);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// Appends a frame's body and gives its type's number.
fn body(frame: &Frame<'_>, out: &mut Vec<u8>) -> u8 {
    match frame {
        Frame::Hello(hello) => {
            out.extend_from_slice(&HELLO_MAGIC);
            out.extend_from_slice(&hello.version.to_le_bytes());
            // 0 or 1.
            out.push(u8::from(hello.priority.index() == 1));
            out.push(0);
            put_u64(out, hello.link);
            out.extend_from_slice(&hello.info);
            kind::HELLO
        }
        Frame::HelloAck(info) => {
            out.extend_from_slice(info);
            kind::HELLO_ACK
        }
        Frame::Refuse(reason) => {
            put_reason(out, reason);
            kind::REFUSE
        }
        Frame::Open(open) => {
            put_u64(out, open.transfer.0);
            put_u64(out, micros(open.remaining));
            out.extend_from_slice(&open.descriptor);
            kind::OPEN
        }
        Frame::Accept(transfer) => {
            put_u64(out, transfer.0);
            kind::ACCEPT
        }
        Frame::Reject(transfer, reason) => {
            put_u64(out, transfer.0);
            put_reason(out, reason);
            kind::REJECT
        }
        Frame::Chunk(chunk) => {
            out.extend_from_slice(&chunk_body(chunk, chunk.payload_crc));
            kind::CHUNK
        }
        Frame::Credit(credit) => {
            credit
                .limit
                .iter()
                .for_each(|limit| put_u64(out, limit.get()));
            kind::CREDIT
        }
        Frame::Ack(ack) => {
            ack.received
                .iter()
                .for_each(|count| put_u64(out, count.get()));
            put_u64(out, micros(ack.clock));
            kind::ACK
        }
        Frame::Heartbeat(beat) => {
            put_u64(out, beat.stamp);
            put_u64(out, beat.echo);
            kind::HEARTBEAT
        }
        Frame::Cancel(transfer, reason) => {
            put_u64(out, transfer.0);
            put_reason(out, reason);
            kind::CANCEL
        }
        Frame::Failed(transfer, reason) => {
            put_u64(out, transfer.0);
            put_reason(out, reason);
            kind::FAILED
        }
        Frame::Done(transfer) => {
            put_u64(out, transfer.0);
            kind::DONE
        }
    }
}

fn chunk_body(chunk: &ChunkHeader, payload_crc: u32) -> [u8; CHUNK_BODY_LEN] {
    let mut out = [0; CHUNK_BODY_LEN];
    let extent = chunk.extent;
    out[0..8].copy_from_slice(&extent.transfer.0.to_le_bytes());
    out[8..12].copy_from_slice(&extent.unit.0.to_le_bytes());
    out[12..14].copy_from_slice(&extent.segment.0.to_le_bytes());
    out[14..16].copy_from_slice(&u16::from(chunk.after_pause).to_le_bytes());
    out[16..20].copy_from_slice(&extent.offset.to_le_bytes());
    out[20..24].copy_from_slice(&extent.len.to_le_bytes());
    out[24..28].copy_from_slice(&chunk.segment_len.to_le_bytes());
    out[28..32].copy_from_slice(&payload_crc.to_le_bytes());
    out[32..40].copy_from_slice(&chunk.segment_checksum.to_le_bytes());
    out
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_reason(out: &mut Vec<u8>, reason: &Reason) {
    out.extend_from_slice(&reason.code().number().to_le_bytes());
    out.extend_from_slice(reason.text().as_bytes());
}

/// Whole microseconds, rounded down; some 580 000 years at most.
fn micros(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
