//! One rail of a stream: a queue pair, and what goes out and comes in by it.

use std::io::{self, IoSlice};
use std::net::Ipv6Addr;
use std::ops::Range;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::incoming::{Immediate, Incoming, Violation};
use super::number::Number;
use super::outgoing::{Kept, Outgoing, Payload, Pieces};
use super::{Completion, Loss, Queue, Source};

/// A queue pair that can be written to.
#[derive(Debug)]
pub(crate) struct Rail {
    /// Before what it may read.
    queue: Box<dyn Queue>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// How long a packet can be.
    packet: usize,
    /// Whether the peer has written anything.
    is_heard: bool,
    /// Whether a packet of full length has been written.
    is_greeted: bool,
    /// Whether packets of full length have come through both ways.
    is_proven: bool,
    /// Why it can't be used any more.
    failure: Option<String>,
}

impl Rail {
    /// `there` is the length of the peer's ring, `here` that of this side's, and `packet` the payload of the longest packet.
    pub(super) fn new(queue: Box<dyn Queue>, there: u32, here: u32, packet: u32) -> Self {
        Self {
            queue,
            outgoing: Outgoing::new(there),
            incoming: Incoming::new(here),
            packet: packet as usize,
            is_heard: false,
            is_greeted: false,
            is_proven: false,
            failure: None,
        }
    }

    /// Why it can't be used any more, where it can't.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// That of a stream which has so many others.
    pub(super) fn loss(&self, left: usize) -> Loss {
        Loss {
            card: Ipv6Addr::from(self.queue.endpoint().gid).to_canonical(),
            left,
            why: self.failure.clone().unwrap_or_default(),
        }
    }

    /// It can't be used any more, unless that is known already. What it has brought can still be read.
    pub(super) fn fail(&mut self, why: &str) {
        if self.failure.is_none() {
            self.failure = Some(why.to_owned());
            self.queue.end();
        }
    }

    /// Whether anything but a greeting may go by it.
    pub(super) fn is_usable(&self) -> bool {
        self.is_proven && self.failure.is_none()
    }

    /// Whether the card has done all that it was given, as far as is known.
    pub(super) fn is_idle(&self) -> bool {
        self.outgoing.is_idle()
    }

    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.queue.poll_ready(context)
    }

    /// Writes a packet of full length, and a word after it.
    pub(super) fn greet(&mut self) {
        self.is_greeted = true;
        // Where the stream's first bytes will be, which come later.
        if let Err(error) = self.queue.write((0..self.packet).into(), 0) {
            self.fail(&error.to_string());
        }
        self.say(Immediate::Taken(0));
    }

    /// Takes what the card has done. Each rail that the peer says has failed is handed to `out`.
    pub(super) fn hear(&mut self, mut out: impl FnMut(u32)) -> Result<(), Violation> {
        while let Some(completion) = self.queue.poll() {
            match completion {
                // Who has lost what it had with the card doesn't ask what became of it.
                Completion::Sent if self.failure.is_some() => {}
                Completion::Sent => self.outgoing.sent()?,
                Completion::Received(immediate) => {
                    self.is_heard = true;
                    match Immediate::decode(immediate) {
                        Immediate::Message(number, bytes) => {
                            self.incoming.arrived(number, bytes)?
                        }
                        Immediate::Taken(messages) => self.outgoing.taken(messages)?,
                        Immediate::Out(rail) => out(rail),
                    }
                }
                Completion::Flushed => self.outgoing.flushed(),
                Completion::Failed(why) => {
                    self.fail(&why);
                    break;
                }
            }
        }
        if self.is_heard && !self.is_greeted {
            self.greet();
        }
        self.is_proven |= self.is_heard && self.is_greeted && self.is_idle();
        Ok(())
    }

    /// How much of so many bytes may go by it as one message.
    pub(super) fn room(&self, wanted: usize) -> usize {
        if self.is_usable() {
            self.outgoing.room(wanted)
        } else {
            0
        }
    }

    /// How many bytes wait for the card.
    pub(super) fn load(&self) -> usize {
        self.outgoing.bytes_with_card()
    }

    /// Writes a message of these bytes and this payload behind them, which are `at` this place of the stream: as many as there is `room` for,
    /// which is no more than they are.
    pub(super) fn write(
        &mut self,
        (number, at): (Number, u64),
        from: &[IoSlice<'_>],
        payload: &Bytes,
        room: usize,
    ) {
        let before: usize = from.iter().map(|part| part.len()).sum();
        let payload = payload.slice(..room.saturating_sub(before));
        let lent = Some(&payload).filter(|it| !it.is_empty() && Outgoing::takes_payload(room));
        let lent = lent.and_then(|payload| self.queue.lent(payload));
        let copied: &[u8] = if lent.is_some() { &[] } else { &payload };
        let place = self.outgoing.place(room);
        let mut staging = self.queue.staging(place..place + room);
        for part in from.iter().map(|part| &**part).chain([copied]) {
            let (filled, rest) = staging.split_at_mut(part.len().min(staging.len()));
            filled.copy_from_slice(&part[..filled.len()]);
            staging = rest;
        }
        let payload = lent.map(|lent| Payload {
            bytes: payload,
            lent,
        });
        // No longer than a message, which a u32 counts.
        let bytes = u32::try_from(room).unwrap_or(0);
        if bytes > 0
            && let Err(error) = self.post((number, at), bytes, payload)
        {
            self.fail(&error.to_string());
        }
    }

    fn post(
        &mut self,
        (number, at): (Number, u64),
        bytes: u32,
        payload: Option<Payload>,
    ) -> io::Result<()> {
        let Pieces { first, last, told } = self.outgoing.post(number, at, bytes, payload);
        if let Some(first) = first {
            self.queue.write(first.from, first.to)?;
        }
        let immediate = Immediate::Message(number, bytes).encode();
        self.queue.write_with(last.from, last.to, immediate, told)
    }

    /// The first message that isn't known to be with the peer.
    pub(super) fn oldest(&self) -> Option<&Kept> {
        self.outgoing.oldest()
    }

    /// The messages of which nobody knows whether the peer has them, once it has failed.
    pub(super) fn lose(&mut self) -> impl Iterator<Item = Kept> {
        self.outgoing.lose()
    }

    /// The bytes of one of them that are staged.
    pub(super) fn kept(&mut self, place: Range<usize>) -> Vec<u8> {
        self.queue.staging(place).to_vec()
    }

    /// Tells the peer what is taken out, where it may need the room.
    pub(super) fn tell(&mut self) {
        if let Some(messages) = self.incoming.to_tell()
            && self.is_usable()
            && self.may_say()
        {
            self.say(Immediate::Taken(messages));
            self.incoming.told();
        }
    }

    pub(super) fn may_say(&self) -> bool {
        self.outgoing.may_say()
    }

    /// Says a word.
    pub(super) fn say(&mut self, word: Immediate) {
        self.outgoing.said();
        if let Err(error) = self
            .queue
            .write_with(Source::default(), 0, word.encode(), true)
        {
            self.fail(&error.to_string());
        }
    }

    /// Has the card say when it has done all that it has.
    pub(super) fn ask(&mut self) {
        if self.outgoing.is_untold() {
            self.say(Immediate::Taken(0));
        }
    }

    /// Whether this message, which isn't read yet, came by it.
    pub(super) fn has(&self, number: Number) -> bool {
        self.incoming.next(number, 1).is_some()
    }

    /// Gives back what comes before this message in the stream.
    pub(super) fn give_back(&mut self, next: Number) {
        self.incoming.give_back(next);
    }

    /// Reads of this message what is in one piece and fits; how much, and whether that was its end.
    pub(super) fn read(&mut self, number: Number, into: &mut [u8]) -> (usize, bool) {
        let Some(next) = self.incoming.next(number, into.len()) else {
            return (0, false);
        };
        let bytes = next.len();
        let part = into.get_mut(..bytes).unwrap_or_default();
        self.queue.copy_out(next.start, part);
        (bytes, self.incoming.take(number, bytes))
    }
}
