//! Frames to bytes of one connection: one decision at a time, as late as the socket allows.

use std::io::{self, IoSlice};

use lynx_protocol::wire::{CHUNK_FRAME_LEN, ChunkHeader};
use lynx_units::{Bytes, Priority};

use crate::Clock;
use crate::checksum::crc32c;
use crate::side::{Outgoing, Side};
use crate::wire::Wire;

/// Control frames are gathered into one write up to this many bytes.
const GATHER: usize = 16 << 10;

/// The writing half of one connection: what has been decided and isn't written yet. That is at most a few control frames
/// and one chunk; everything else can still be overtaken.
#[derive(Debug)]
pub(crate) struct Outbound {
    on: Priority,
    control: Vec<u8>,
    chunk: Option<Chunk>,
    /// How many bytes of control frames, header and payload together are written.
    written: usize,
    sent: Bytes,
}

#[derive(Debug)]
struct Chunk {
    header: ChunkHeader,
    bytes: [u8; CHUNK_FRAME_LEN],
    payload: bytes::Bytes,
}

/// What a call of [`Outbound::write`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Something; there may be more.
    Some,
    /// Nothing, because there is nothing to say.
    Idle,
    /// Nothing, because the socket is full.
    Full,
}

impl Outbound {
    pub(crate) fn new(on: Priority) -> Self {
        Self {
            on,
            control: Vec::with_capacity(GATHER),
            chunk: None,
            written: 0,
            sent: Bytes::ZERO,
        }
    }

    /// Bytes written so far, headers included, and without what encryption adds.
    pub(crate) fn sent(&self) -> Bytes {
        self.sent
    }

    /// Whether something has been decided that isn't all written.
    pub(crate) fn is_pending(&self) -> bool {
        self.chunk.is_some() || !self.control.is_empty()
    }

    /// Makes one write, of what is left from the last one or of what the protocol wants next.
    pub(crate) fn write(
        &mut self,
        wire: &mut impl Wire,
        side: &mut impl Side,
        clock: Clock,
    ) -> io::Result<Wrote> {
        // First what was taken before: nothing is decided while the system doesn't take what is.
        match self.write_next(wire, side, clock) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Wrote::Full),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Wrote::Some),
            wrote => wrote,
        }
    }

    fn write_next(
        &mut self,
        wire: &mut impl Wire,
        side: &mut impl Side,
        clock: Clock,
    ) -> io::Result<Wrote> {
        wire.flush()?;
        if !self.is_pending() {
            self.fill(side, clock);
        }
        if !self.is_pending() {
            return Ok(Wrote::Idle);
        }
        let (before, payload) = self.unwritten();
        let written = wire.write_chunk(before, &payload)?;
        self.advance(written, side);
        Ok(Wrote::Some)
    }

    /// Takes control frames until there are many, or up to a chunk.
    fn fill(&mut self, side: &mut impl Side, clock: Clock) {
        while self.control.len() < GATHER {
            match side.poll_transmit(self.on, clock.now()) {
                None => break,
                Some(Outgoing::Frame(packet)) => {
                    // Only a descriptor or a peer's information can be too long, and both were checked when they were
                    // handed in.
                    packet.encode(&mut self.control).ok();
                }
                Some(Outgoing::Chunk(header, payload)) => {
                    self.chunk = Some(Chunk {
                        header,
                        bytes: header.encode(crc32c(&payload)),
                        payload,
                    });
                    break;
                }
            }
        }
    }

    /// What is not written yet.
    fn unwritten(&self) -> ([IoSlice<'_>; 2], bytes::Bytes) {
        let chunk = self.chunk.as_ref();
        let header: &[u8] = chunk.map_or(&[], |chunk| &chunk.bytes);
        let mut skip = self.written;
        let before = [&self.control, header].map(|part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            IoSlice::new(part.get(skipped..).unwrap_or_default())
        });
        let payload = chunk.map(|chunk| chunk.payload.slice(skip.min(chunk.payload.len())..));
        (before, payload.unwrap_or_default())
    }

    fn advance(&mut self, written: usize, side: &mut impl Side) {
        self.sent += Bytes::new(written as u64);
        self.written += written;
        let chunk = self.chunk.as_ref();
        let in_chunk = chunk.map_or(0, |chunk| CHUNK_FRAME_LEN + chunk.payload.len());
        if self.written < self.control.len() + in_chunk {
            return;
        }
        self.written = 0;
        self.control.clear();
        if let Some(chunk) = self.chunk.take() {
            side.chunk_written(&chunk.header);
        }
    }
}
