//! Bytes of one connection to frames, and a chunk's payload straight to where it belongs.

use std::io::{self, IoSliceMut};

use lynx_protocol::wire::{CHUNK_FRAME_LEN, ChunkHeader, Decoded, Frame, WireError, decode};
use lynx_units::{Bytes, Priority};

use crate::Clock;
use crate::checksum::Running;
use crate::side::Side;
use crate::wire::Wire;

/// How much of an unwanted payload is read at once.
const SCRATCH: usize = 64 << 10;

/// Why no more can be read from a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The peer has closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What the peer says is no sequence of frames.
    #[error("{0}")]
    Wire(#[from] WireError),
}

/// The reading half of one connection.
///
/// One call to [`read`](Self::read) is one system call: it fills what is missing of the payload and, behind it, the next
/// frame's start. No more than the longest prefix that can't contain payload is read ahead ([`CHUNK_FRAME_LEN`] bytes, or
/// exactly the frame at hand where that is longer), so payload is never copied here.
#[derive(Debug)]
pub(crate) struct Inbound {
    on: Priority,
    /// Bytes of frames not yet decoded: the first `filled` are valid.
    staging: Vec<u8>,
    filled: usize,
    /// A lower bound of the frame at hand.
    wanted: usize,
    chunk: Option<Progress>,
    scratch: Vec<u8>,
    received: Bytes,
}

/// A chunk whose header is here and whose payload isn't all.
#[derive(Clone, Copy, Debug)]
struct Progress {
    header: ChunkHeader,
    placed: bool,
    got: u32,
    crc: Running,
}

impl Inbound {
    pub(crate) fn new(on: Priority) -> Self {
        Self {
            on,
            staging: vec![0; CHUNK_FRAME_LEN],
            filled: 0,
            wanted: CHUNK_FRAME_LEN,
            chunk: None,
            scratch: vec![0; SCRATCH],
            received: Bytes::ZERO,
        }
    }

    /// Bytes read so far, headers included, and without what encryption adds.
    pub(crate) fn received(&self) -> Bytes {
        self.received
    }

    /// Reads what is there, up to the end of the payload at hand, and handles what is whole. `false` where the socket is
    /// empty.
    pub(crate) fn read(
        &mut self,
        wire: &mut impl Wire,
        side: &mut impl Side,
        clock: Clock,
    ) -> Result<bool, ReadError> {
        let read = match self.read_once(wire, side) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            read => read?,
        };
        if read == 0 {
            return Err(ReadError::Closed);
        }
        self.received += Bytes::new(read as u64);
        side.handle_activity(self.on, clock.now());
        let payload = self.take_payload(read, side, clock);
        self.filled += read - payload;
        self.decode_frames(side, clock)?;
        Ok(true)
    }

    fn read_once(&mut self, wire: &mut impl Wire, side: &mut impl Side) -> io::Result<usize> {
        let (filled, wanted) = (self.filled, self.wanted);
        let ahead = self.staging.get_mut(filled..wanted).unwrap_or_default();
        let ahead = IoSliceMut::new(ahead);
        let Some(chunk) = &self.chunk else {
            return wire.read(&mut [ahead]);
        };
        let slot = chunk.placed.then(|| side.slot(&chunk.header)).flatten();
        let slot = slot.and_then(|slot| slot.get_mut(chunk.got as usize..));
        match slot {
            Some(slot) => wire.read(&mut [IoSliceMut::new(slot), ahead]),
            // Unwanted, or no longer wanted.
            None => {
                let rest = chunk.rest().min(SCRATCH);
                let scratch = self.scratch.get_mut(..rest).unwrap_or_default();
                wire.read(&mut [IoSliceMut::new(scratch)])
            }
        }
    }

    /// Accounts for the part of `read` bytes that is payload, and says how many they are.
    fn take_payload(&mut self, read: usize, side: &mut impl Side, clock: Clock) -> usize {
        let Some(mut chunk) = self.chunk.take() else {
            return 0;
        };
        let payload = read.min(chunk.rest());
        if chunk.placed
            && let Some(slot) = side.slot(&chunk.header)
        {
            let start = chunk.got as usize;
            let fresh = slot.get(start..start + payload).unwrap_or_default();
            chunk.crc.add(fresh);
        }
        // At most the chunk's length, which is a u32.
        chunk.got += u32::try_from(payload).unwrap_or(0);
        self.settle(chunk, side, clock);
        payload
    }

    /// Reports a chunk that is complete; keeps one that isn't.
    fn settle(&mut self, chunk: Progress, side: &mut impl Side, clock: Clock) {
        if chunk.rest() > 0 {
            self.chunk = Some(chunk);
        } else if chunk.placed {
            let intact = chunk.crc.is(chunk.header.payload_crc);
            side.chunk_done(self.on, &chunk.header, intact, clock.now());
        }
    }

    /// Handles every whole frame of the staging buffer, and moves the rest to its front.
    fn decode_frames(&mut self, side: &mut impl Side, clock: Clock) -> Result<(), WireError> {
        let mut start = 0;
        self.wanted = CHUNK_FRAME_LEN;
        while self.chunk.is_none() {
            let bytes = self.staging.get(start..self.filled).unwrap_or_default();
            match decode(bytes)? {
                Decoded::Incomplete { at_least } => {
                    self.wanted = at_least.max(CHUNK_FRAME_LEN);
                    break;
                }
                Decoded::Packet { packet, len } => {
                    start += len;
                    if let Frame::Chunk(header) = packet.frame {
                        let placed = side.chunk_begins(self.on, &header, clock.now());
                        let chunk = Progress {
                            header,
                            placed,
                            got: 0,
                            crc: Running::new(),
                        };
                        self.settle(chunk, side, clock);
                    } else {
                        side.handle_packet(self.on, &packet, clock.now());
                    }
                }
            }
        }
        self.staging.copy_within(start..self.filled, 0);
        self.filled -= start;
        if self.staging.len() < self.wanted {
            self.staging.resize(self.wanted, 0);
        }
        Ok(())
    }
}

impl Progress {
    /// How much of the payload is missing.
    fn rest(&self) -> usize {
        (self.header.extent.len - self.got) as usize
    }
}
