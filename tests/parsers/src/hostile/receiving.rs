//! A receiver beside a hostile sender.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::receiver::{Event, Receiver, ReceiverConfig};
use lynx_protocol::wire::{Ack, ChunkHeader, Credit, Frame, Open, Packet};
use lynx_protocol::{Code, CreditBook, Extent, Reason};
use lynx_units::{Bytes as Amount, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::{epoch, heartbeat, name, out_of_place, pause, plan, priority, reason};
use crate::bytes::Bytes;

const WINDOW: Amount = ReceiverConfig::MIN_WINDOW;

/// Whatever a peer sends: no panic, each transfer ends once, no credit beyond the window, nothing after the end, and the
/// memory comes back.
pub(crate) fn receiver(input: &[u8]) {
    let book = CreditBook::new(Amount::from_mib(4));
    let mut world = World::new(&book);
    let mut bytes = Bytes(input);
    while !bytes.is_empty() {
        world.act(&mut bytes);
        world.look();
    }
    drop(world);
    assert_eq!(book.left(), book.budget());
}

/// The receiver, and what its application and driver know.
struct World {
    receiver: Receiver,
    now: Timestamp,
    offered: BTreeSet<TransferId>,
    live: BTreeSet<TransferId>,
    over: BTreeSet<TransferId>,
    /// Bytes of complete segments that are held, by priority.
    held: [u64; 2],
    /// A chunk whose payload is being read, by connection.
    reading: [Option<ChunkHeader>; 2],
    levels: BTreeMap<TransferId, u8>,
    limit: [Amount; 2],
    broken: bool,
}

impl World {
    fn new(book: &Arc<CreditBook>) -> Self {
        let config = ReceiverConfig {
            window: [WINDOW; 2],
        };
        let now = Timestamp::ORIGIN;
        Self {
            receiver: Receiver::new(super::EPOCH, config, book, now).expect("an empty book"),
            now,
            offered: BTreeSet::new(),
            live: BTreeSet::new(),
            over: BTreeSet::new(),
            held: [0; 2],
            reading: [None; 2],
            levels: BTreeMap::new(),
            limit: [Amount::ZERO; 2],
            broken: false,
        }
    }

    fn act(&mut self, bytes: &mut Bytes<'_>) {
        let now = self.now;
        match bytes.u8() % 11 {
            0 => {
                self.now += pause(bytes);
                self.receiver.handle_timeout(self.now);
            }
            1 => self.receiver.handle_activity(priority(bytes), now),
            2 | 3 => self.frame(bytes),
            4..=6 => self.chunk(bytes),
            7 => {
                let name = name(bytes);
                let accepted = self.receiver.accept(name, plan(), now);
                assert_eq!(accepted.is_ok(), self.offered.remove(&name), "{accepted:?}");
                if accepted.is_ok() {
                    self.live.insert(name);
                }
            }
            8 => self.end(bytes),
            9 => {
                let on = priority(bytes);
                let some = u64::from(bytes.u16()).min(self.held[on.index()]);
                self.held[on.index()] -= some;
                self.receiver.release(on, Amount::new(some), now);
            }
            _ => self.give_up(bytes),
        }
    }

    fn frame(&mut self, bytes: &mut Bytes<'_>) {
        let on = priority(bytes);
        let epoch = epoch(bytes);
        let frame = match bytes.u8() % 8 {
            0..=2 => Frame::Open(Open {
                transfer: name(bytes),
                remaining: Duration::from_millis(u64::from(bytes.u32())),
                descriptor: Cow::Borrowed(b"plan"),
            }),
            3 => heartbeat(bytes),
            4 => Frame::Cancel(name(bytes), reason(bytes)),
            5 => Frame::Failed(name(bytes), reason(bytes)),
            6 => out_of_place(bytes),
            _ => match bytes.u8() % 4 {
                0 => Frame::Accept(name(bytes)),
                1 => Frame::Credit(Credit::default()),
                2 => Frame::Ack(Ack::default()),
                _ => Frame::Done(name(bytes)),
            },
        };
        let packet = Packet { epoch, frame };
        self.receiver.handle_frame(on, &packet, self.now);
    }

    /// Reads the payload that is outstanding on a connection, then the next header.
    fn chunk(&mut self, bytes: &mut Bytes<'_>) {
        let on = priority(bytes);
        if let Some(header) = self.reading[on.index()].take() {
            let intact = bytes.u8() != 0;
            self.receiver
                .handle_chunk_done(on, &header, intact, self.now);
            return;
        }
        let whole = bytes.flag();
        let segment_len = u32::from(bytes.u16());
        let header = ChunkHeader {
            epoch: epoch(bytes),
            extent: Extent {
                transfer: name(bytes),
                unit: UnitIndex(u32::from(bytes.u8() % 3)),
                segment: SegmentIndex(u16::from(bytes.u8() % 4)),
                offset: if whole { 0 } else { u32::from(bytes.u16()) },
                len: if whole {
                    segment_len
                } else {
                    u32::from(bytes.u16())
                },
            },
            after_pause: bytes.flag(),
            segment_len,
            segment_checksum: u64::from(bytes.u8() % 2),
            payload_crc: 0,
        };
        let placed = self.receiver.handle_chunk_header(on, &header, self.now);
        if let Ok(place) = placed {
            assert!(self.live.contains(&place.extent.transfer));
            assert!(place.extent.offset + place.extent.len <= place.segment_len);
            self.reading[on.index()] = Some(header);
        }
    }

    fn end(&mut self, bytes: &mut Bytes<'_>) {
        let (name, now) = (name(bytes), self.now);
        match bytes.u8() % 3 {
            0 => {
                self.receiver.reject(name, "not wanted", now);
                // There is no event about it.
                if self.offered.remove(&name) {
                    self.over.insert(name);
                }
            }
            1 => self.receiver.cancel(name, "gone", now),
            _ => {
                let reason = Reason::new(Code::Application, "can't");
                self.receiver.fail(name, reason, now);
            }
        }
    }

    fn give_up(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() {
            0 => self.receiver.shut_down(self.now),
            1 => {
                let reason = Reason::new(Code::Disconnected, "reset");
                self.receiver.handle_disconnected(reason, self.now);
            }
            _ => {}
        }
    }

    /// Everything that the receiver wants, held against what is known.
    fn look(&mut self) {
        while let Some(event) = self.receiver.poll_event() {
            assert!(!self.broken, "{event:?} after the end");
            self.event(event);
        }
        for on in Priority::ALL {
            while let Some(packet) = self.receiver.poll_transmit(on, self.now) {
                if let Frame::Credit(credit) = packet.frame {
                    self.credit(credit.limit);
                }
            }
        }
        let timeout = self.receiver.poll_timeout();
        assert_eq!(timeout.is_none(), self.receiver.is_over());
    }

    fn credit(&mut self, limit: [Amount; 2]) {
        let received = self.receiver.stats().received;
        for on in 0..2 {
            assert!(limit[on] >= self.limit[on], "a limit fell");
            let ahead = limit[on].get() - received[on].get();
            assert!(
                ahead + self.held[on] <= WINDOW.get(),
                "more is granted than there is memory"
            );
        }
        self.limit = limit;
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Offered { transfer, .. } => {
                let known = [&self.offered, &self.live, &self.over];
                assert!(known.iter().all(|names| !names.contains(&transfer)));
                self.offered.insert(transfer);
            }
            Event::SegmentComplete {
                transfer,
                segment,
                len,
                ..
            } => {
                assert!(self.live.contains(&transfer));
                self.held[usize::from(segment.0 > 0)] += u64::from(len);
            }
            Event::LevelComplete { transfer, level } => {
                assert!(self.live.contains(&transfer));
                let next = self.levels.entry(transfer).or_default();
                assert_eq!(*next, level);
                *next += 1;
            }
            Event::Complete(transfer) => {
                assert_eq!(self.levels.get(&transfer), Some(&2));
                assert!(self.live.remove(&transfer));
                self.over.insert(transfer);
            }
            Event::Failed(transfer, _) | Event::Cancelled(transfer, _) => {
                assert!(self.live.remove(&transfer) || self.offered.remove(&transfer));
                assert!(self.over.insert(transfer), "{transfer} ended twice");
            }
            Event::Broken(_) => {
                assert!(self.live.is_empty() && self.offered.is_empty());
                self.broken = true;
            }
        }
    }
}
