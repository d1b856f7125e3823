//! A sender beside a hostile receiver.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use lynx_protocol::limits::MAX_CHUNK;
use lynx_protocol::sender::{Event, OpenTransfer, Segment, Sender, Transmit};
use lynx_protocol::wire::{Ack, ChunkHeader, Credit, Frame, Packet};
use lynx_protocol::{Code, Reason};
use lynx_units::{Bytes as Amount, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::{
    BOUND, LEVELS, UNITS, epoch, heartbeat, name, out_of_place, pause, plan, priority, reason,
};
use crate::bytes::Bytes;

/// Whatever a peer answers: no panic, each transfer ends once, no byte without credit, each byte of a published segment at
/// most once and in order, nothing after the end.
pub(crate) fn sender(input: &[u8]) {
    let mut world = World::new();
    let mut bytes = Bytes(input);
    while !bytes.is_empty() {
        world.act(&mut bytes);
        world.look();
    }
}

/// The sender, and what its application and driver know.
struct World {
    sender: Sender,
    now: Timestamp,
    live: BTreeSet<TransferId>,
    over: BTreeSet<TransferId>,
    accepted: BTreeSet<TransferId>,
    /// Length of each published segment, and how much of it has been handed out.
    published: BTreeMap<(TransferId, UnitIndex, SegmentIndex), (u32, u32)>,
    granted: [u64; 2],
    sent: [u64; 2],
    broken: bool,
}

impl World {
    fn new() -> Self {
        Self {
            sender: Sender::new(super::EPOCH, Timestamp::ORIGIN),
            now: Timestamp::ORIGIN,
            live: BTreeSet::new(),
            over: BTreeSet::new(),
            accepted: BTreeSet::new(),
            published: BTreeMap::new(),
            granted: [0; 2],
            sent: [0; 2],
            broken: false,
        }
    }

    fn act(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 10 {
            0 => {
                self.now += pause(bytes);
                self.sender.handle_timeout(self.now);
            }
            1 => self.sender.handle_activity(priority(bytes), self.now),
            2..=4 => self.frame(bytes),
            5 => self.open(bytes),
            6 | 7 => self.publish(bytes),
            8 => match bytes.u8() % 2 {
                0 => self.sender.cancel(name(bytes), "gone"),
                _ => {
                    let reason = Reason::new(Code::Application, "can't");
                    self.sender.fail(name(bytes), reason);
                }
            },
            _ => match bytes.u8() {
                0 => self.sender.shut_down(),
                1 => {
                    let reason = Reason::new(Code::Disconnected, "reset");
                    self.sender.handle_disconnected(reason);
                }
                _ => {}
            },
        }
    }

    fn frame(&mut self, bytes: &mut Bytes<'_>) {
        let on = priority(bytes);
        let epoch = epoch(bytes);
        let current = epoch == super::EPOCH && !self.sender.is_over();
        let frame = match bytes.u8() % 12 {
            0..=2 => {
                let name = name(bytes);
                if current && self.live.contains(&name) {
                    self.accepted.insert(name);
                }
                Frame::Accept(name)
            }
            3 => Frame::Reject(name(bytes), reason(bytes)),
            4..=6 => {
                let limit = [(); 2].map(|()| u64::from(bytes.u32() % (1 << 20)));
                if current {
                    for (granted, limit) in self.granted.iter_mut().zip(limit) {
                        *granted = limit.max(*granted);
                    }
                }
                Frame::Credit(Credit {
                    limit: limit.map(Amount::new),
                })
            }
            7 => Frame::Ack(Ack {
                received: self
                    .sent
                    .map(|sent| Amount::new(sent.saturating_sub(u64::from(bytes.u8())))),
                clock: pause(bytes),
            }),
            8 => heartbeat(bytes),
            9 => Frame::Cancel(name(bytes), reason(bytes)),
            10 => Frame::Done(name(bytes)),
            _ => match bytes.u8() % 4 {
                0 => Frame::Failed(name(bytes), reason(bytes)),
                1 => Frame::Ack(Ack {
                    received: [Amount::new(bytes.u64()); 2],
                    clock: pause(bytes),
                }),
                _ => out_of_place(bytes),
            },
        };
        let packet = Packet { epoch, frame };
        self.sender.handle_frame(on, &packet, self.now);
    }

    fn open(&mut self, bytes: &mut Bytes<'_>) {
        let name = name(bytes);
        let open = OpenTransfer {
            transfer: name,
            descriptor: Cow::Borrowed(b"plan"),
            plan: plan(),
            deadline: self.now + pause(bytes),
        };
        if self.sender.open(open, self.now).is_ok() {
            assert!(!self.over.contains(&name), "a name was used twice");
            assert!(self.live.insert(name));
        }
    }

    fn publish(&mut self, bytes: &mut Bytes<'_>) {
        let name = name(bytes);
        let unit = UnitIndex(u32::from(bytes.u8()) % (UNITS + 1));
        let segments = [(); LEVELS.len()].map(|()| Segment {
            len: u32::from(bytes.u16()) % (BOUND + 2),
            checksum: 7,
        });
        // A piece of the unit, or all of it.
        let count = 1 + usize::from(bytes.u8()) % LEVELS.len();
        let Ok(first) = self.sender.publish(name, unit, &segments[..count]) else {
            return;
        };
        assert!(self.live.contains(&name) && first + count <= LEVELS.len());
        let numbers = (0u16..).map(SegmentIndex).skip(first);
        for (number, segment) in numbers.zip(&segments[..count]) {
            let again = self
                .published
                .insert((name, unit, number), (segment.len, 0));
            assert!(again.is_none(), "a segment was taken twice");
        }
    }

    fn look(&mut self) {
        self.events();
        for on in Priority::ALL {
            while let Some(transmit) = self.sender.poll_transmit(on, self.now) {
                if let Transmit::Chunk(header) = transmit {
                    self.chunk(on, &header);
                }
            }
        }
        self.events();
        assert_eq!(self.sender.poll_timeout().is_none(), self.sender.is_over());
    }

    fn chunk(&mut self, on: Priority, header: &ChunkHeader) {
        let extent = header.extent;
        assert!(!self.broken && extent.len <= MAX_CHUNK);
        assert!(self.live.contains(&extent.transfer) && self.accepted.contains(&extent.transfer));
        assert_eq!(
            on == Priority::Anchor,
            LEVELS[usize::from(extent.segment.0)] == 0
        );
        let name = (extent.transfer, extent.unit, extent.segment);
        let (len, done) = self.published.get_mut(&name).expect("a published segment");
        assert_eq!((header.segment_len, extent.offset), (*len, *done));
        *done += extent.len;
        assert!(*done <= *len);
        self.sent[on.index()] += u64::from(extent.len);
        assert!(self.sent[on.index()] <= self.granted[on.index()]);
    }

    fn events(&mut self) {
        while let Some(event) = self.sender.poll_event() {
            assert!(!self.broken, "{event:?} after the end");
            match event {
                Event::Accepted(name) => assert!(self.accepted.contains(&name)),
                Event::Complete(name) | Event::Failed(name, _) | Event::Cancelled(name, _) => {
                    assert!(self.live.remove(&name), "{name} ended twice");
                    self.over.insert(name);
                }
                Event::Broken(_) => {
                    assert!(self.live.is_empty());
                    self.broken = true;
                }
            }
        }
    }
}
