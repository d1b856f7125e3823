//! What is written, and frames of an older epoch before it: a relay, or a driver that mixes up its lives, may bring them.

use lynx_protocol::wire::{ChunkHeader, Packet};
use lynx_units::Epoch;

use super::buffer::Buffer;
use super::network::Direction;
use super::random::Random;

/// Decides which frames come in an older epoch as well, and counts them.
#[derive(Debug, Default)]
pub(crate) struct OldFrames {
    random: Option<Random>,
    pub(crate) said: u64,
}

impl OldFrames {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Some(Random::new(seed)),
            said: 0,
        }
    }

    /// The epoch in which the next frame is said once more, and before.
    pub(crate) fn before(&mut self, epoch: Epoch) -> Option<Epoch> {
        let random = self.random.as_mut()?;
        let older = Epoch(epoch.0.checked_sub(1)?);
        random.one_in(8).then(|| {
            self.said += 1;
            older
        })
    }
}

/// Bytes that the socket has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Buffer,
    scratch: Vec<u8>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn frame(&mut self, packet: &Packet<'_>) {
        self.scratch.clear();
        packet.encode(&mut self.scratch).unwrap();
        self.bytes.push(&self.scratch);
    }

    pub(crate) fn chunk(&mut self, header: &ChunkHeader, payload: &[u8]) {
        self.bytes.push(&header.encode(crc32c::crc32c(payload)));
        self.bytes.push(payload);
    }

    /// Writes what the socket of a stream takes; `false` where it takes nothing.
    pub(crate) fn flush(&mut self, stream: usize, output: &mut Direction) -> bool {
        let taken = self.bytes.len().min(output.room(stream));
        output.write(stream, &self.bytes.all()[..taken]);
        self.bytes.take(taken);
        taken > 0
    }
}
