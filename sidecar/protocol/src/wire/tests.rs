use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bolero::TypeGenerator;
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, TransferId, UnitIndex};

use super::*;
use crate::limits::{MAX_CHUNK, MAX_DESCRIPTOR, MAX_PEER_INFO, MAX_REASON, PROTOCOL_VERSION};
use crate::{Code, Extent, Reason};

/// Raw numbers from which any valid frame can be made.
#[derive(Clone, Debug, TypeGenerator)]
struct Seeds {
    kind: u8,
    epoch: u32,
    numbers: [u64; 3],
    small: [u32; 4],
    text: Vec<u8>,
}

impl Seeds {
    fn packet(&self) -> Packet<'_> {
        Packet {
            epoch: Epoch(self.epoch),
            frame: self.frame(),
        }
    }

    fn frame(&self) -> Frame<'_> {
        let [a, b, c] = self.numbers;
        let transfer = TransferId(a);
        let text: alloc::string::String = self.text.iter().map(|&b| char::from(b)).collect();
        let reason = Reason::new(Code::ALL[self.small[0] as usize % 8], &text);
        match self.kind % 13 {
            0 => Frame::Hello(Hello {
                version: self.small[0].to_le_bytes()[0].into(),
                priority: Priority::ALL[self.small[1] as usize % 2],
                link: b,
                info: Cow::Borrowed(&self.text),
            }),
            1 => Frame::HelloAck(Cow::Borrowed(&self.text)),
            2 => Frame::Refuse(reason),
            3 => Frame::Open(Open {
                transfer,
                remaining: Duration::from_micros(b),
                descriptor: Cow::Borrowed(&self.text),
            }),
            4 => Frame::Accept(transfer),
            5 => Frame::Reject(transfer, reason),
            6 => Frame::Chunk(self.chunk()),
            7 => Frame::Credit(Credit {
                limit: [Bytes::new(a), Bytes::new(b)],
            }),
            8 => Frame::Ack(Ack {
                received: [Bytes::new(a), Bytes::new(b)],
                clock: Duration::from_micros(c),
            }),
            9 => Frame::Heartbeat(Heartbeat { stamp: a, echo: b }),
            10 => Frame::Cancel(transfer, reason),
            11 => Frame::Failed(transfer, reason),
            _ => Frame::Done(transfer),
        }
    }

    fn chunk(&self) -> ChunkHeader {
        let [unit, offset, len, crc] = self.small;
        let offset = offset % (1 << 20);
        let len = 1 + len % MAX_CHUNK;
        ChunkHeader {
            epoch: Epoch(self.epoch),
            extent: Extent {
                transfer: TransferId(self.numbers[0]),
                unit: UnitIndex(unit),
                segment: SegmentIndex(u16::from(self.kind)),
                offset,
                len,
            },
            after_pause: self.epoch % 2 == 1,
            segment_len: offset + len + crc % 1000,
            segment_checksum: self.numbers[1],
            payload_crc: crc,
        }
    }
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_frame_comes_back_as_it_was_whatever_follows_it() {
    bolero::check!().with_type::<Seeds>().for_each(|seeds| {
        let packet = seeds.packet();
        let mut bytes = encoded(&packet);
        let len = bytes.len();
        bytes.extend_from_slice(&seeds.text);
        assert_eq!(decode(&bytes), Ok(Decoded::Packet { packet, len }));
    });
}

#[test]
fn every_beginning_of_a_frame_is_incomplete_and_asks_for_more() {
    bolero::check!().with_type::<Seeds>().for_each(|seeds| {
        let bytes = encoded(&seeds.packet());
        for cut in 0..bytes.len() {
            match decode(&bytes[..cut]) {
                Ok(Decoded::Incomplete { at_least }) => {
                    assert!(cut < at_least && at_least <= bytes.len());
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_flipped_bit_never_gives_a_frame() {
    bolero::check!()
        .with_type::<(Seeds, u32)>()
        .for_each(|(seeds, place)| {
            let mut bytes = encoded(&seeds.packet());
            let bit = *place as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(&bytes), Ok(Decoded::Packet { .. })));
        });
}

#[test]
fn any_bytes_are_decoded_without_a_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let mut marked = vec![FRAME_MARK];
        marked.extend_from_slice(bytes);
        for bytes in [bytes, &marked] {
            if let Ok(Decoded::Incomplete { at_least }) = decode(bytes) {
                assert!(at_least > bytes.len());
            }
        }
    });
}

/// A frame with a right checksum whose header and body are whatever a hostile peer likes.
fn forged(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![FRAME_MARK, kind, 0, 0, 1, 0, 0, 0];
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    let crc = crc32c(&[&bytes, body]);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn forged_bodies_are_frames_that_survive_a_round_trip_or_errors() {
    bolero::check!()
        .with_type::<(u8, Vec<u8>)>()
        .for_each(|(kind, body)| {
            if let Ok(Decoded::Packet { packet, .. }) = decode(&forged(kind % 16, body)) {
                let again = encoded(&packet);
                let len = again.len();
                assert_eq!(decode(&again), Ok(Decoded::Packet { packet, len }));
            }
        });
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_their_bytes_are_there() {
    for (kind, max) in [
        (1, 16 + MAX_PEER_INFO),
        (2, MAX_PEER_INFO),
        (4, 16 + MAX_DESCRIPTOR),
        (6, 10 + MAX_REASON),
        (7, 40),
        (9, 24),
    ] {
        let mut header = forged(kind, &[])[..HEADER_LEN].to_vec();
        let len = u32::try_from(max + 1).unwrap();
        header[8..12].copy_from_slice(&len.to_le_bytes());
        assert_eq!(decode(&header), Err(WireError::TooLong { kind, len, max }));
    }
}

#[test]
fn a_chunk_that_reaches_beyond_its_segment_is_refused() {
    let seeds = Seeds {
        kind: 6,
        epoch: 1,
        numbers: [1, 2, 3],
        small: [0; 4],
        text: Vec::new(),
    };
    let good = seeds.chunk();
    let refused = |change: fn(&mut ChunkHeader)| {
        let mut chunk = good;
        change(&mut chunk);
        let bytes = chunk.encode(chunk.payload_crc);
        assert!(
            matches!(decode(&bytes), Err(WireError::Value { .. })),
            "{chunk:?}"
        );
    };
    refused(|chunk| chunk.extent.offset = 1);
    refused(|chunk| chunk.extent.offset = u32::MAX);
    refused(|chunk| chunk.extent.len = 0);
    refused(|chunk| chunk.segment_len = 0);
    refused(|chunk| chunk.segment_len = u32::MAX);
    refused(|chunk| {
        chunk.extent.len = MAX_CHUNK + 1;
        chunk.segment_len = MAX_CHUNK + 1;
    });
}

#[test]
fn a_chunks_own_encoding_is_that_of_its_frame() {
    bolero::check!().with_type::<Seeds>().for_each(|seeds| {
        let chunk = seeds.chunk();
        let packet = Packet {
            epoch: chunk.epoch,
            frame: Frame::Chunk(chunk),
        };
        assert_eq!(chunk.encode(chunk.payload_crc).as_slice(), encoded(&packet));
    });
}

#[test]
fn a_stranger_is_told_apart_from_a_broken_path() {
    assert_eq!(decode(b"GET / HTTP/1.1"), Err(WireError::NoFrame(b'G')));
    assert_eq!(decode(&forged(99, &[])), Err(WireError::UnknownKind(99)));
    assert_eq!(decode(&forged(1, &[0; 16])), Err(WireError::NoLynx));
    let mut broken = forged(13, &[0; 8]);
    broken[20] ^= 1;
    assert_eq!(decode(&broken), Err(WireError::Checksum(13)));
    assert_eq!(
        decode(&forged(13, &[0; 7])),
        Err(WireError::WrongLength(13))
    );
}

#[test]
fn what_is_too_long_to_be_read_is_not_written() {
    let open = Packet {
        epoch: Epoch(1),
        frame: Frame::Open(Open {
            transfer: TransferId(1),
            remaining: Duration::ZERO,
            descriptor: Cow::Owned(vec![0; MAX_DESCRIPTOR + 1]),
        }),
    };
    let mut out = vec![7];
    assert_eq!(
        open.encode(&mut out),
        Err(EncodeError::Descriptor(MAX_DESCRIPTOR + 1))
    );
    assert_eq!(out, [7]);
}

#[test]
fn the_bytes_of_version_one_stay_what_they_are() {
    assert_eq!(PROTOCOL_VERSION, 1);
    let hello = Packet {
        epoch: Epoch(0x0102_0304),
        frame: Frame::Hello(Hello {
            version: 1,
            priority: Priority::Residual,
            link: 0x1122_3344_5566_7788,
            info: Cow::Borrowed(b"i"),
        }),
    };
    insta::assert_snapshot!(hex(&encoded(&hello)), @r"
    a7 01 00 00 04 03 02 01
    11 00 00 00 bc ad 39 da
    4c 59 4e 58 01 00 01 00
    88 77 66 55 44 33 22 11
    69
    ");
    let chunk = ChunkHeader {
        epoch: Epoch(5),
        extent: Extent {
            transfer: TransferId(0x0A),
            unit: UnitIndex(0x0B),
            segment: SegmentIndex(0x0C),
            offset: 0x0D,
            len: 0x0E,
        },
        after_pause: true,
        segment_len: 0x0F00,
        segment_checksum: 0x1011_1213_1415_1617,
        payload_crc: 0,
    };
    insta::assert_snapshot!(hex(&chunk.encode(0xAABB_CCDD)), @r"
    a7 07 00 00 05 00 00 00
    28 00 00 00 d8 f9 5e 45
    0a 00 00 00 00 00 00 00
    0b 00 00 00 0c 00 01 00
    0d 00 00 00 0e 00 00 00
    00 0f 00 00 dd cc bb aa
    17 16 15 14 13 12 11 10
    ");
}

/// Eight bytes to a line.
fn hex(bytes: &[u8]) -> alloc::string::String {
    let line = |line: &[u8]| {
        let words: Vec<_> = line
            .iter()
            .map(|byte| alloc::format!("{byte:02x}"))
            .collect();
        words.join(" ")
    };
    let lines: Vec<_> = bytes.chunks(8).map(line).collect();
    lines.join("\n")
}
