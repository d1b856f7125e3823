//! What the peer has written into the ring, and what of it has been taken out.

use std::collections::VecDeque;
use std::ops::Range;

use super::outgoing::{LONGEST, MOST_UNTAKEN};

/// The bit of an immediate that says that it counts messages taken out, and not the bytes of one.
const TAKEN: u32 = 1 << 31;
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
    /// A message of so many bytes has been written.
    Message(u32),
    /// So many messages were taken out on the other side.
    Taken(u32),
}

impl Immediate {
    pub(crate) const fn encode(self) -> u32 {
        match self {
            Self::Message(bytes) => bytes,
            Self::Taken(messages) => messages | TAKEN,
        }
    }

    pub(crate) const fn decode(immediate: u32) -> Self {
        if immediate & TAKEN == 0 {
            Self::Message(immediate)
        } else {
            Self::Taken(immediate & !TAKEN)
        }
    }
}

/// The reading half.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The length of the ring.
    ring: u32,
    /// Where the next byte is taken out.
    at: u32,
    /// The lengths of the messages that are not all taken out, and their sum.
    messages: VecDeque<u32>,
    held: u32,
    /// How much of the first of them is.
    taken_of_first: u32,
    /// Messages that were taken out without the peer being told, and their bytes.
    untold: u32,
    untold_bytes: u32,
}

impl Incoming {
    pub(crate) fn new(ring: u32) -> Self {
        Self {
            ring,
            at: 0,
            messages: VecDeque::with_capacity(MOST_UNTAKEN),
            held: 0,
            taken_of_first: 0,
            untold: 0,
            untold_bytes: 0,
        }
    }

    /// The peer has written a message.
    pub(crate) fn arrived(&mut self, bytes: u32) -> Result<(), Violation> {
        if bytes == 0 || bytes as usize > LONGEST {
            return Err(Violation::Length(bytes));
        }
        let room = self.ring - self.held - self.untold_bytes;
        let is_one_too_many = self.messages.len() + self.untold as usize >= MOST_UNTAKEN;
        if bytes > room || is_one_too_many {
            return Err(Violation::Overrun);
        }
        self.messages.push_back(bytes);
        self.held += bytes;
        Ok(())
    }

    /// Where the next bytes are in the ring, as far as they are in one piece, and no more than so many; `None` where there
    /// are none.
    pub(crate) fn next(&self, most: usize) -> Option<Range<usize>> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let unread = self.held - self.taken_of_first;
        let bytes = unread.min(self.ring - self.at).min(most);
        (bytes > 0).then(|| self.at as usize..(self.at + bytes) as usize)
    }

    /// So many of the [`next`](Self::next) bytes are taken out.
    pub(crate) fn take(&mut self, bytes: usize) {
        // No more than there were.
        let bytes = u32::try_from(bytes).unwrap_or(0);
        self.at = (self.at + bytes) % self.ring;
        self.taken_of_first += bytes;
        while let Some(first) = self.messages.front().copied()
            && first <= self.taken_of_first
        {
            self.messages.pop_front();
            self.taken_of_first -= first;
            self.held -= first;
            self.untold += 1;
            self.untold_bytes += first;
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
