//! One half against the other, over a wire that cuts the stream anywhere.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use lynx_protocol::wire::{Ack, ChunkHeader, Frame, Heartbeat, Open, Packet};
use lynx_protocol::{Extent, LinkEstimate, Reason};
use lynx_units::{Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::*;
use crate::Clock;
use crate::checksum::crc32c;
use crate::inbound::{Inbound, ReadError};
use crate::outbound::{Outbound, Wrote};
use crate::side::{Outgoing, Side};

const ON: Priority = Priority::Residual;

/// A small generator: the tests need variety, not quality.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, limit: u64) -> u64 {
        let next = self
            .0
            .get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0.set(next);
        (next >> 33) % limit
    }
}

/// Takes and gives some bytes, or none for now.
struct Jerky {
    random: Random,
    bytes: RefCell<VecDeque<u8>>,
}

impl Jerky {
    /// How many bytes the next call moves: often few, sometimes many.
    fn appetite(&self) -> io::Result<usize> {
        let most = [0, 1, 20, 60, 5000, 100_000][usize::try_from(self.random.below(6)).unwrap()];
        match most {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            most => Ok(usize::try_from(self.random.below(most)).unwrap() + 1),
        }
    }
}

impl Wire for Jerky {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut bytes = self.bytes.borrow_mut();
        let mut most = self.appetite()?.min(bytes.len());
        if most == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut read = 0;
        for part in into {
            let count = most.min(part.len());
            for (place, byte) in part.iter_mut().zip(bytes.drain(..count)) {
                *place = byte;
            }
            most -= count;
            read += count;
        }
        assert!(read > 0, "a read with no room looks like the stream's end");
        Ok(read)
    }

    fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = self.appetite()?;
        let all = from.iter().flat_map(|part| part.iter().copied());
        let before = self.bytes.borrow().len();
        self.bytes.borrow_mut().extend(all.take(most));
        Ok(self.bytes.borrow().len() - before)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What came out at the far end.
#[derive(Debug, PartialEq)]
enum Heard {
    Frame(Vec<u8>),
    Chunk(ChunkHeader, Vec<u8>, bool),
    Unwanted(ChunkHeader),
}

/// Says what is queued, and writes down what it hears. Chunks of odd transfers are unwanted; those of transfers that
/// are multiples of four stop being wanted half-way.
#[derive(Default)]
struct Script {
    queue: VecDeque<Outgoing>,
    written: usize,
    buffer: Vec<u8>,
    heard: Vec<Heard>,
}

impl Side for Script {
    type Command = ();
    type Counts = ();

    fn command(&mut self, (): (), _: Timestamp) {}
    fn shut_down(&mut self, _: Timestamp) {}

    fn handle_packet(&mut self, on: Priority, packet: &Packet<'_>, _: Timestamp) {
        assert_eq!(on, ON);
        self.heard.push(Heard::Frame(encoded(packet)));
    }

    fn handle_activity(&mut self, _: Priority, _: Timestamp) {}
    fn handle_disconnected(&mut self, _: Reason, _: Timestamp) {}
    fn handle_timeout(&mut self, _: Timestamp) {}

    fn chunk_begins(&mut self, _: Priority, header: &ChunkHeader, _: Timestamp) -> bool {
        let wanted = header.extent.transfer.0.is_multiple_of(2);
        if wanted {
            self.buffer = vec![0; header.extent.len as usize];
        } else {
            self.heard.push(Heard::Unwanted(*header));
        }
        wanted
    }

    fn slot(&mut self, header: &ChunkHeader) -> Option<&mut [u8]> {
        let gone =
            header.extent.transfer.0.is_multiple_of(4) && self.buffer.iter().any(|byte| *byte != 0);
        (!gone).then_some(&mut self.buffer)
    }

    fn chunk_done(&mut self, _: Priority, header: &ChunkHeader, intact: bool, _: Timestamp) {
        let bytes = std::mem::take(&mut self.buffer);
        self.heard.push(Heard::Chunk(*header, bytes, intact));
    }

    fn poll_transmit(&mut self, _: Priority, _: Timestamp) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    fn chunk_written(&mut self, _: &ChunkHeader) {
        self.written += 1;
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn gather_events(&mut self) -> bool {
        false
    }

    fn send_events(&mut self) {}

    fn is_over(&self) -> bool {
        false
    }

    fn estimate(&self) -> LinkEstimate {
        LinkEstimate::default()
    }

    fn counts(&self) {}
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).unwrap();
    bytes
}

fn random_frame(random: &Random) -> Packet<'static> {
    let frame = match random.below(4) {
        0 => Frame::Heartbeat(Heartbeat::default()),
        1 => Frame::Ack(Ack::default()),
        2 => Frame::Done(TransferId(random.below(100))),
        _ => Frame::Open(Open {
            transfer: TransferId(random.below(100)),
            remaining: std::time::Duration::from_secs(1),
            descriptor: vec![7; usize::try_from(random.below(2000)).unwrap()].into(),
        }),
    };
    Packet {
        epoch: Epoch(1),
        frame,
    }
}

/// A chunk of bytes that are never zero, so that [`Script`] sees whether any has come.
fn random_chunk(random: &Random) -> (ChunkHeader, bytes::Bytes) {
    let longest = [1, 2, 100, 20_000][usize::try_from(random.below(4)).unwrap()];
    let len = u32::try_from(random.below(longest)).unwrap();
    let start = random.below(200);
    let payload: Vec<u8> = (start..)
        .take(len as usize)
        .map(|i| (i % 255 + 1).to_le_bytes()[0])
        .collect();
    let header = ChunkHeader {
        epoch: Epoch(1),
        extent: Extent {
            transfer: TransferId(random.below(100)),
            unit: UnitIndex(3),
            segment: SegmentIndex(1),
            offset: 0,
            len,
        },
        after_pause: false,
        segment_len: len,
        segment_checksum: start,
        payload_crc: 0,
    };
    (header, payload.into())
}

/// Moves everything that `talker` has to say over the wire, in small steps on both sides.
fn carry(wire: &mut Jerky, talker: &mut Script, listener: &mut Script) -> Result<(), ReadError> {
    let clock = Clock::start();
    let mut outbound = Outbound::new(ON);
    let mut inbound = Inbound::new(ON);
    let mut idle = false;
    while !idle || !wire.bytes.borrow().is_empty() {
        idle = outbound.write(wire, talker, clock).unwrap() == Wrote::Idle;
        inbound.read(wire, listener, clock)?;
    }
    assert_eq!(inbound.received(), outbound.sent());
    Ok(())
}

fn jerky(seed: u64) -> Jerky {
    Jerky {
        random: Random(Cell::new(seed)),
        bytes: RefCell::default(),
    }
}

#[test]
fn every_frame_and_payload_survives_a_stream_that_is_cut_anywhere() {
    for seed in 0..300 {
        let mut wire = jerky(seed);
        let mut talker = Script::default();
        let mut listener = Script::default();
        let mut said = Vec::new();
        let mut chunks = 0;
        for _ in 0..40 {
            if wire.random.below(2) == 0 {
                let packet = random_frame(&wire.random);
                said.push(Heard::Frame(encoded(&packet)));
                talker.queue.push_back(Outgoing::Frame(packet));
                continue;
            }
            let (mut header, payload) = random_chunk(&wire.random);
            talker
                .queue
                .push_back(Outgoing::Chunk(header, payload.clone()));
            chunks += 1;
            header.payload_crc = crc32c(&payload);
            said.push(match header.extent.transfer.0 % 2 {
                0 => Heard::Chunk(header, payload.to_vec(), true),
                _ => Heard::Unwanted(header),
            });
        }
        carry(&mut wire, &mut talker, &mut listener).unwrap();
        assert_eq!(talker.written, chunks, "seed {seed}");
        assert_eq!(listener.heard.len(), said.len(), "seed {seed}");
        for (heard, said) in listener.heard.iter().zip(&said) {
            match (heard, said) {
                // Given up half-way: only that it is reported, under its header, and the next frame is found.
                (Heard::Chunk(heard, _, false), Heard::Chunk(said, ..)) => {
                    assert_eq!(heard, said, "seed {seed}");
                    assert_eq!(said.extent.transfer.0 % 4, 0, "seed {seed}");
                }
                _ => assert!(heard == said, "seed {seed}"),
            }
        }
    }
}

#[test]
fn a_payload_with_a_flipped_bit_is_not_intact() {
    let mut wire = jerky(1);
    let (mut header, payload) = (random_chunk(&wire.random).0, vec![9; 5000]);
    header.extent.transfer = TransferId(2);
    header.extent.len = 5000;
    header.segment_len = 5000;
    let clock = Clock::start();
    let mut talker = Script::default();
    talker
        .queue
        .push_back(Outgoing::Chunk(header, payload.into()));
    let mut outbound = Outbound::new(ON);
    while outbound.write(&mut wire, &mut talker, clock).unwrap() != Wrote::Idle {}
    wire.bytes.borrow_mut()[3000] ^= 4;
    let mut listener = Script::default();
    let mut inbound = Inbound::new(ON);
    while !wire.bytes.borrow().is_empty() {
        inbound.read(&mut wire, &mut listener, clock).unwrap();
    }
    assert!(matches!(&*listener.heard, [Heard::Chunk(_, _, false)]));
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let mut wire = jerky(2);
    wire.bytes.borrow_mut().extend(b"GET / HTTP/1.1\r\n\r\n");
    let error = carry(&mut wire, &mut Script::default(), &mut Script::default()).unwrap_err();
    assert!(matches!(error, ReadError::Wire(_)), "{error}");
}
