//! What the peer has written into the ring, and what of it has been taken out.

use std::collections::VecDeque;
use std::ops::Range;

use super::number::Number;
use super::outgoing::{LONGEST, MOST_UNTAKEN};

/// The bit of an immediate that says that it is a word, and not a message's.
const WORD: u32 = 1 << 31;
/// The bit of a word that says that it names a rail, and doesn't count messages taken out.
const OUT: u32 = 1 << 30;
/// How many bits of a message's immediate are its length; its number is above them.
const LENGTH_BITS: u32 = 19;
/// After so many messages at most the peer is told that they are taken out: it has as many more.
const TELL_MESSAGES: usize = MOST_UNTAKEN / 2;

/// What a peer, or a card, can't have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error(
        "the peer says that it wrote a message of {0} bytes, and none is longer than {LONGEST}"
    )]
    Length(u32),
    #[error("the peer wrote into memory that it was not given back")]
    Overrun,
    #[error("the peer says that it took out messages that were not written")]
    Taken,
    #[error("the card completes what was not posted")]
    Card,
}

/// What an immediate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Immediate {
    /// A message of this number and so many bytes has been written.
    Message(Number, u32),
    /// So many messages were taken out on the other side.
    Taken(u32),
    /// This rail has failed on the other side.
    Out(u32),
}

impl Immediate {
    pub(crate) fn encode(self) -> u32 {
        match self {
            Self::Message(number, bytes) => bytes | u32::from(number.get()) << LENGTH_BITS,
            Self::Taken(messages) => messages | WORD,
            Self::Out(rail) => rail | WORD | OUT,
        }
    }

    pub(crate) fn decode(immediate: u32) -> Self {
        let rest = immediate & !(WORD | OUT);
        match (immediate & WORD != 0, immediate & OUT != 0) {
            (false, _) => {
                let number = Number::of(immediate >> LENGTH_BITS);
                Self::Message(number, immediate & ((1 << LENGTH_BITS) - 1))
            }
            (true, false) => Self::Taken(rest),
            (true, true) => Self::Out(rest),
        }
    }
}

/// The reading half.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The length of the ring.
    ring: u32,
    /// Where the next message will be.
    end: u32,
    /// What isn't given back yet, in the order in which it came.
    messages: VecDeque<Message>,
    /// The sum of their lengths.
    held: u32,
    /// Messages that were given back without the peer being told, and their bytes.
    untold: u32,
    untold_bytes: u32,
}

/// A message in the ring.
#[derive(Debug)]
struct Message {
    number: Number,
    /// Where it begins.
    at: u32,
    length: u32,
    /// How much of it is taken out.
    taken: u32,
}

impl Incoming {
    pub(crate) fn new(ring: u32) -> Self {
        Self {
            ring,
            end: 0,
            messages: VecDeque::with_capacity(MOST_UNTAKEN),
            held: 0,
            untold: 0,
            untold_bytes: 0,
        }
    }

    /// The peer has written a message.
    pub(crate) fn arrived(&mut self, number: Number, bytes: u32) -> Result<(), Violation> {
        if bytes == 0 || bytes as usize > LONGEST {
            return Err(Violation::Length(bytes));
        }
        let room = self.ring - self.held - self.untold_bytes;
        let is_one_too_many = self.messages.len() + self.untold as usize >= MOST_UNTAKEN;
        if bytes > room || is_one_too_many {
            return Err(Violation::Overrun);
        }
        self.messages.push_back(Message {
            number,
            at: self.end,
            length: bytes,
            taken: 0,
        });
        self.end = (self.end + bytes) % self.ring;
        self.held += bytes;
        Ok(())
    }

    /// Where the next bytes of this message are in the ring, as far as they are in one piece, and no more than so many; `None` where
    /// it isn't here, or all of it was taken out.
    pub(crate) fn next(&self, number: Number, most: usize) -> Option<Range<usize>> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut messages = self.messages.iter();
        let message = messages.find(|message| message.number == number)?;
        let start = (message.at + message.taken) % self.ring;
        let unread = message.length - message.taken;
        let bytes = unread.min(self.ring - start).min(most);
        (bytes > 0).then(|| start as usize..(start + bytes) as usize)
    }

    /// So many of the [`next`](Self::next) bytes of a message are taken out; whether that was its end.
    pub(crate) fn take(&mut self, number: Number, bytes: usize) -> bool {
        let mut messages = self.messages.iter_mut();
        let message = messages.find(|message| message.number == number);
        message.is_some_and(|message| {
            // No more than there were.
            message.taken += u32::try_from(bytes).unwrap_or(0);
            message.taken >= message.length
        })
    }

    /// Gives back what comes before this message in the stream: it was taken out, here or of another rail. What comes later
    /// in the ring than something that doesn't, waits.
    pub(crate) fn give_back(&mut self, next: Number) {
        while let Some(message) = self
            .messages
            .pop_front_if(|first| first.number.is_before(next))
        {
            self.held -= message.length;
            self.untold += 1;
            self.untold_bytes += message.length;
        }
    }

    /// How many messages the peer is to be told of; `None` as long as it has room enough without.
    pub(crate) fn to_tell(&self) -> Option<u32> {
        let is_due = self.untold as usize >= TELL_MESSAGES || self.untold_bytes >= self.ring / 4;
        (is_due && self.untold > 0).then_some(self.untold)
    }

    /// It has been told.
    pub(crate) fn told(&mut self) {
        self.untold = 0;
        self.untold_bytes = 0;
    }
}
