//! What of a stream has been written into the peer's ring, and what more may be.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use lynx_protocol::limits::MAX_CHUNK;
use lynx_protocol::wire::CHUNK_FRAME_LEN;

use super::incoming::Violation;
use super::number::Number;
use super::queue::Source;

/// Most long messages with the card: one that it is writing, and the next. What is there can't be overtaken, so this is what
/// an anchor waits for at most.
pub(crate) const MOST_LONG: usize = 2;
/// Most short messages with the card.
pub(crate) const MOST_SHORT: usize = 16;
/// Most words about what was taken out that are with the card: more wait, and are one then.
pub(crate) const MOST_WORDS: usize = 2;
/// Most messages that the peer has not taken out of its ring.
pub(crate) const MOST_UNTAKEN: usize = 64;
/// The longest message: a chunk with its frame.
pub(crate) const LONGEST: usize = MAX_CHUNK as usize + CHUNK_FRAME_LEN;
/// The longest short message: some frames without payload.
const SHORT: usize = 1 << 10;
/// How many short messages go by without the card saying that it has done them.
const UNTOLD: usize = 7;

/// The writing half.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The length of the peer's ring.
    ring: u64,
    /// Bytes that were written and that the peer has taken out, over the life of the connection.
    written: u64,
    taken: u64,
    /// The numbers of the next long and short message: which of the staging memory's places are theirs.
    next: [usize; 2],
    /// What is with the card, as far as is known.
    unsent: VecDeque<Posted>,
    /// How many there were since one that it says of.
    untold: usize,
    /// The lengths of those that the peer has not taken out.
    untaken: VecDeque<u32>,
    /// What was with the card when it failed, as long as it may read that.
    retained: Vec<Bytes>,
    /// Whether a card that has failed reads nothing any more.
    is_flushed: bool,
}

/// Something that the card was given.
#[derive(Debug)]
struct Posted {
    kind: Kind,
    /// Whether the card says so when it has done it.
    told: bool,
    /// None of a word.
    message: Option<Kept>,
}

/// A message whose bytes are in the staging memory still, or where the card reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) number: Number,
    /// Where in the stream it begins.
    pub(crate) at: u64,
    /// Its first bytes, all of them where it has no payload.
    pub(crate) staged: Range<usize>,
    /// The others.
    pub(crate) payload: Bytes,
}

/// Payload that lies in memory which the card was lent.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// Held as long as the card may read them.
    pub(crate) bytes: Bytes,
    /// Where they lie.
    pub(crate) lent: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Long,
    Short,
    Word,
}

/// One write of a message, into the peer's ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) from: Source,
    pub(crate) to: u32,
}

/// A message's writes: one, or two where the ring ends within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) first: Option<Piece>,
    pub(crate) last: Piece,
    /// Whether the card is to say that it has done them.
    pub(crate) told: bool,
}

impl Kind {
    const fn of(length: usize) -> Self {
        if length <= SHORT {
            Self::Short
        } else {
            Self::Long
        }
    }
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.staged.len() + self.payload.len()
    }
}

impl Outgoing {
    /// Bytes of staging memory that it needs.
    pub(crate) const STAGING: usize = LONGEST * MOST_LONG + SHORT * MOST_SHORT;
    /// Writes that may be under way.
    pub(crate) const SENDS: usize = 2 * (MOST_LONG + MOST_SHORT) + MOST_WORDS;

    pub(crate) fn new(ring: u32) -> Self {
        Self {
            ring: ring.into(),
            written: 0,
            taken: 0,
            next: [0; 2],
            unsent: VecDeque::with_capacity(MOST_LONG + MOST_SHORT + MOST_WORDS),
            untold: 0,
            untaken: VecDeque::with_capacity(MOST_UNTAKEN),
            retained: Vec::new(),
            is_flushed: false,
        }
    }

    /// How much of so many bytes the next message may be; zero where there may be none.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let free = self.ring - (self.written - self.taken);
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        let length = wanted.min(free).min(LONGEST);
        let kind = Kind::of(length);
        let most = if kind == Kind::Long {
            MOST_LONG
        } else {
            MOST_SHORT
        };
        let is_full = self.with_card(kind) == most || self.untaken.len() == MOST_UNTAKEN;
        if is_full { 0 } else { length }
    }

    /// Whether a message of so many bytes may have payload that isn't copied: of a short one a copy costs less.
    pub(crate) fn takes_payload(length: usize) -> bool {
        Kind::of(length) == Kind::Long
    }

    /// Where in the staging memory the next message's bytes go, if it has so many.
    pub(crate) fn place(&self, length: usize) -> usize {
        let [long, short] = self.next;
        match Kind::of(length) {
            Kind::Short | Kind::Word => LONGEST * MOST_LONG + short % MOST_SHORT * SHORT,
            Kind::Long => long % MOST_LONG * LONGEST,
        }
    }

    /// The writes of the next message, whose first bytes, `staged`, are in their [`place`](Self::place) and whose others are payload. Together
    /// they are `length`, which is above zero, and no more than there is [`room`](Self::room) for.
    pub(crate) fn post(
        &mut self,
        number: Number,
        at: u64,
        length: u32,
        payload: Option<Payload>,
    ) -> Pieces {
        // Below the ring's length, which is a u32.
        let to = u32::try_from(self.written % self.ring).unwrap_or(0);
        let kind = Kind::of(length as usize);
        let place = self.place(length as usize);
        let (payload, lent) = payload.map_or((Bytes::new(), 0..0), |it| (it.bytes, it.lent));
        let staged = place..place + length as usize - lent.len();
        let whole = Source {
            staged: staged.clone(),
            lent,
        };
        self.next[usize::from(kind == Kind::Short)] += 1;
        self.written += u64::from(length);
        self.untaken.push_back(length);
        let kept = Kept {
            number,
            at,
            staged,
            payload,
        };
        let told = self.push(kind, Some(kept));
        let before_end = self.ring - u64::from(to);
        if u64::from(length) <= before_end {
            let last = Piece { from: whole, to };
            return Pieces {
                first: None,
                last,
                told,
            };
        }
        let [from, last] = whole.split_at(usize::try_from(before_end).unwrap_or(0));
        Pieces {
            first: Some(Piece { from, to }),
            last: Piece { from: last, to: 0 },
            told,
        }
    }

    /// Whether one more word may be said.
    pub(crate) fn may_say(&self) -> bool {
        self.with_card(Kind::Word) < MOST_WORDS
    }

    /// A word, without bytes, is with the card, which says when it has done it: nothing else may come after it.
    pub(crate) fn said(&mut self) {
        self.push(Kind::Word, None);
    }

    fn push(&mut self, kind: Kind, message: Option<Kept>) -> bool {
        let told = kind != Kind::Short || self.untold == UNTOLD;
        self.untold = if told { 0 } else { self.untold + 1 };
        self.unsent.push_back(Posted {
            kind,
            told,
            message,
        });
        told
    }

    fn with_card(&self, kind: Kind) -> usize {
        self.unsent
            .iter()
            .filter(|posted| posted.kind == kind)
            .count()
    }

    /// The card has done the oldest that it says of, and all before.
    pub(crate) fn sent(&mut self) -> Result<(), Violation> {
        let told = self.unsent.iter().position(|posted| posted.told);
        let told = told.ok_or(Violation::Card)?;
        self.unsent.drain(..=told);
        Ok(())
    }

    /// The card has failed: the messages of which nobody knows whether they are in the peer's memory, the oldest first.
    pub(crate) fn lose(&mut self) -> impl Iterator<Item = Kept> {
        let messages = self.unsent.drain(..).filter_map(|posted| posted.message);
        messages.inspect(|message| {
            if !self.is_flushed {
                self.retained.push(message.payload.clone());
            }
        })
    }

    /// The card has failed, and reads nothing any more.
    pub(crate) fn flushed(&mut self) {
        self.is_flushed = true;
        self.retained.clear();
    }

    /// The first message that isn't known to be in the peer's memory.
    pub(crate) fn oldest(&self) -> Option<&Kept> {
        self.unsent
            .iter()
            .find_map(|posted| posted.message.as_ref())
    }

    /// How many bytes the card has, as far as is known.
    pub(crate) fn bytes_with_card(&self) -> usize {
        let messages = self
            .unsent
            .iter()
            .filter_map(|posted| posted.message.as_ref());
        messages.map(Kept::len).sum()
    }

    /// Whether the card has done all that it was given, as far as is known.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether the card has something, and will say nothing of it.
    pub(crate) fn is_untold(&self) -> bool {
        !self.is_idle() && self.unsent.iter().all(|posted| !posted.told)
    }

    /// The peer has taken so many more messages out of its ring.
    pub(crate) fn taken(&mut self, messages: u32) -> Result<(), Violation> {
        for _ in 0..messages {
            let length = self.untaken.pop_front().ok_or(Violation::Taken)?;
            self.taken += u64::from(length);
        }
        Ok(())
    }
}
