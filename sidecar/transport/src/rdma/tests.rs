//! Both halves of a stream against a model of it: a queue of bytes, and memory that remembers who may write to it.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::incoming::{Immediate, Incoming, Violation};
use super::number::Number;
use super::outgoing::{
    LONGEST, MOST_LONG, MOST_SHORT, MOST_UNTAKEN, MOST_WORDS, Outgoing, Payload, Pieces,
};

/// Where payload begins in memory that was lent.
const HERE: usize = 1 << 30;

/// What happens next.
#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Step {
    /// The application writes up to so many bytes.
    Write(u32),
    /// It writes some, and payload that lies where the card can read it.
    WriteBefore(u8, u32),
    /// The card does the oldest thing.
    Card,
    /// The receiving application takes out up to so many bytes.
    Read(u16),
    /// The receiving side says what is taken out, if there is reason to.
    Tell,
    /// The sending side hears the oldest word.
    Hear,
}

/// A message that the card has.
struct Message {
    /// Its place in the staging memory.
    place: usize,
    /// The first byte of the stream, the length and the place in the ring of each.
    writes: Vec<(u64, usize, usize)>,
    told: bool,
}

/// A stream between a sender and a receiver.
struct World {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Which byte of the stream is at each place of the ring, and whether it may be written over.
    ring: Vec<Option<u64>>,
    with_card: VecDeque<Message>,
    words: VecDeque<u32>,
    written: u64,
    read: u64,
    /// The numbers of the messages that arrive and are read next.
    arriving: Number,
    reading: Number,
}

impl World {
    fn new(ring: u32) -> Self {
        Self {
            outgoing: Outgoing::new(ring),
            incoming: Incoming::new(ring),
            ring: vec![None; ring as usize],
            with_card: VecDeque::new(),
            words: VecDeque::new(),
            written: 0,
            read: 0,
            arriving: Number::default(),
            reading: Number::default(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(wanted) => self.write(wanted, 0),
            Step::WriteBefore(before, payload) => self.write(before.into(), payload),
            Step::Card => self.card(),
            Step::Read(most) => self.read(most.into()),
            Step::Tell => {
                if let Some(messages) = self.incoming.to_tell() {
                    self.incoming.told();
                    self.words.push_back(messages);
                }
            }
            Step::Hear => {
                if let Some(messages) = self.words.pop_front() {
                    self.outgoing.taken(messages).unwrap();
                }
            }
        }
    }

    fn write(&mut self, before: u32, payload: u32) {
        let length = self.outgoing.room(before as usize + payload as usize);
        if length == 0 {
            return;
        }
        let place = self.outgoing.place(length);
        assert!(
            !self.with_card.iter().any(|message| message.place == place),
            "its bytes are under way"
        );
        let payload = length.saturating_sub(before as usize);
        let payload = if Outgoing::takes_payload(length) {
            payload
        } else {
            0
        };
        let (lent, held) = (HERE..HERE + payload, Bytes::from(vec![0; payload]));
        let of_payload = (payload > 0).then_some(Payload { bytes: held, lent });
        let length = u32::try_from(length).unwrap();
        let posted = self.outgoing.post(Number::default(), 0, length, of_payload);
        let Pieces { first, last, told } = posted;
        let (mut staged, mut lent) = (place, HERE);
        let mut writes = Vec::new();
        for piece in first.into_iter().chain([last]) {
            let is_next = |range: &Range<usize>, from| range.is_empty() || range.start == from;
            assert!(is_next(&piece.from.staged, staged) && is_next(&piece.from.lent, lent));
            staged += piece.from.staged.len();
            lent += piece.from.lent.len();
            let to = piece.to as usize;
            assert!(to + piece.from.len() <= self.ring.len(), "within the ring");
            writes.push((self.written, piece.from.len(), to));
            self.written += piece.from.len() as u64;
        }
        assert_eq!(lent, HERE + payload);
        assert_eq!(staged, place + length as usize - payload);
        assert!(staged <= Outgoing::STAGING && length as usize <= LONGEST);
        self.with_card.push_back(Message {
            place,
            writes,
            told,
        });
        assert!(self.with_card.len() <= MOST_LONG + MOST_SHORT);
    }

    fn card(&mut self) {
        let Some(Message { writes, told, .. }) = self.with_card.pop_front() else {
            return;
        };
        let mut length = 0;
        for (first, bytes, to) in writes {
            for (place, byte) in self.ring[to..to + bytes].iter_mut().zip(first..) {
                assert_eq!(*place, None, "written over before it was taken out");
                *place = Some(byte);
            }
            length += u32::try_from(bytes).unwrap();
        }
        self.incoming.arrived(self.arriving, length).unwrap();
        self.arriving = self.arriving.next();
        if told {
            self.outgoing.sent().unwrap();
        }
    }

    fn read(&mut self, most: usize) {
        let Some(next) = self.incoming.next(self.reading, most) else {
            return;
        };
        assert!(next.len() <= most);
        for place in &mut self.ring[next.clone()] {
            assert_eq!(place.take(), Some(self.read), "bytes in order, each once");
            self.read += 1;
        }
        if self.incoming.take(self.reading, next.len()) {
            self.reading = self.reading.next();
            self.incoming.give_back(self.reading);
        }
    }
}

#[test]
fn whatever_happens_bytes_come_in_order_and_nothing_is_written_over() {
    bolero::check!()
        .with_type::<(u16, Vec<Step>)>()
        .for_each(|(ring, steps)| {
            let mut world = World::new(u32::from(*ring) + 1);
            for step in steps {
                world.step(*step);
            }
            // From wherever that was, the rest comes too, and there is room for more: nobody waits for ever.
            for _ in 0..4 * MOST_UNTAKEN {
                world.step(Step::Card);
                while world.incoming.next(world.reading, 1).is_some() {
                    world.step(Step::Read(u16::MAX));
                }
                world.step(Step::Tell);
                world.step(Step::Hear);
            }
            assert_eq!(world.read, world.written);
            assert!(world.outgoing.room(1) > 0 && world.outgoing.room(1 << 20) > 0);
        });
}

#[test]
fn of_short_messages_one_in_eight_is_told() {
    let mut outgoing = Outgoing::new(1000);
    let mut told = Vec::new();
    for _ in 0..MOST_SHORT {
        assert_eq!(outgoing.room(1), 1);
        told.push(outgoing.post(Number::default(), 0, 1, None).told);
    }
    assert_eq!(
        outgoing.room(1),
        0,
        "no place in the staging memory is free"
    );
    assert_eq!(told.iter().filter(|told| **told).count(), MOST_SHORT / 8);
    outgoing.sent().unwrap();
    assert_eq!(
        outgoing.room(1),
        1,
        "what was told is done, and all before it"
    );
}

#[test]
fn who_waits_for_what_nothing_is_said_of_says_a_word() {
    let mut outgoing = Outgoing::new(1000);
    assert!(!outgoing.is_untold(), "there is nothing");
    outgoing.post(Number::default(), 0, 1, None);
    assert!(outgoing.is_untold());
    outgoing.said();
    assert!(!outgoing.is_untold());
    outgoing.sent().unwrap();
    assert!(outgoing.is_idle());
    for _ in 0..MOST_WORDS {
        assert!(outgoing.may_say());
        outgoing.said();
    }
    assert!(!outgoing.may_say());
}

#[test]
fn what_a_peer_can_not_have_done_is_told() {
    let mut incoming = Incoming::new(1 << 20);
    let long = u32::try_from(LONGEST).unwrap() + 1;
    assert_eq!(
        incoming.arrived(Number::default(), 0),
        Err(Violation::Length(0))
    );
    assert_eq!(
        incoming.arrived(Number::default(), long),
        Err(Violation::Length(long))
    );
    for _ in 0..3 {
        incoming.arrived(Number::default(), long - 1).unwrap();
    }
    assert_eq!(
        incoming.arrived(Number::default(), long - 1),
        Err(Violation::Overrun)
    );
    let mut incoming = Incoming::new(1 << 20);
    for _ in 0..MOST_UNTAKEN {
        incoming.arrived(Number::default(), 1).unwrap();
    }
    assert_eq!(
        incoming.arrived(Number::default(), 1),
        Err(Violation::Overrun)
    );
    let mut outgoing = Outgoing::new(1000);
    assert_eq!(outgoing.taken(1), Err(Violation::Taken));
    assert_eq!(outgoing.sent(), Err(Violation::Card));
}

#[test]
fn an_immediate_is_read_as_it_was_written() {
    for immediate in [
        Immediate::Message(Number::default(), 1),
        Immediate::Message(Number::of(4095), (1 << 19) - 1),
        Immediate::Taken(0),
        Immediate::Taken(64),
        Immediate::Out(3),
    ] {
        assert_eq!(Immediate::decode(immediate.encode()), immediate);
    }
}

/// As where a message that another rail has lost comes after a later one, and one comes again.
#[test]
fn messages_are_read_by_their_numbers_and_given_back_in_the_order_of_the_ring() {
    let number = Number::of;
    let mut incoming = Incoming::new(100);
    for (message, bytes) in [(1, 10), (0, 20), (2, 30), (0, 20)] {
        incoming.arrived(number(message), bytes).unwrap();
    }
    assert_eq!(incoming.next(number(0), 100), Some(10..30));
    assert!(!incoming.take(number(0), 5));
    assert_eq!(incoming.next(number(0), 100), Some(15..30));
    assert!(incoming.take(number(0), 15));
    incoming.give_back(number(1));
    assert_eq!(incoming.next(number(2), 7), Some(30..37));
    let full = incoming.arrived(number(3), 21);
    assert_eq!(full, Err(Violation::Overrun), "the first is still there");
    assert!(incoming.take(number(1), 10));
    incoming.give_back(number(2));
    assert!(incoming.take(number(2), 30));
    incoming.give_back(number(3));
    incoming.told();
    // What came again is gone too, and all of the ring is free.
    incoming.arrived(number(3), 100).unwrap();
    assert_eq!(incoming.next(number(3), 100), Some(80..100));
}
