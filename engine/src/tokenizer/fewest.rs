//! How few tokens a text can have, from its bytes alone.
//!
//! A prompt that can't fit in a context is refused before anything of it is tokenised, which takes hundreds of bytes of
//! memory for each of its own. It is a bound and no estimate: a token that begins with two bytes reaches as far as the
//! longest one that does, whatever follows.

use std::borrow::Cow;

use super::vocabulary::{Family, Kind, Vocabulary};

/// The bound of one vocabulary.
#[derive(Debug)]
pub(super) struct Fewest {
    /// The longest token that begins with these two bytes, in bytes; at least 1.
    reach: Box<[u16]>,
    /// Bytes that are tokens; others are left out of a text.
    known: [bool; 256],
    /// The longest token, in bytes of the text as it is given; `None` where any number of bytes may be one token.
    widest: Option<usize>,
    by_start: ByStart,
}

/// Whether a token's first bytes are the text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByStart {
    Always,
    /// Other texts are composed first.
    InAscii,
    /// Spaces are put in front.
    Never,
}

/// Composition (Unicode NFC) makes a text shorter, by no more than this.
const COMPOSED: usize = 4;

impl Fewest {
    pub(super) fn new(vocabulary: &Vocabulary, pieces: &[Box<[u8]>], composed: bool) -> Self {
        let mut known = [false; 256];
        for piece in pieces {
            if let [byte] = **piece {
                known[usize::from(byte)] = true;
            }
        }
        let written = vocabulary.tokens.iter().zip(&vocabulary.kinds);
        let written = written
            .filter(|(_, kind)| **kind != Kind::Normal)
            .map(|(token, _)| token.as_bytes());
        let mut reach = vec![1_u16; 1 << 16].into_boxed_slice();
        let mut widest = 1;
        for piece in pieces.iter().map(|piece| &**piece).chain(written) {
            widest = widest.max(piece.len());
            let mut kept = piece.iter().filter(|byte| known[usize::from(**byte)]);
            if let (Some(&first), Some(&second)) = (kept.next(), kept.next()) {
                let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
                let longest = &mut reach[pair(first, second)];
                *longest = length.max(*longest);
            }
        }
        let complete = known.iter().all(|known| *known);
        let (widest, by_start) = match vocabulary.family {
            Family::Bytes if composed => (
                complete.then(|| widest.saturating_mul(COMPOSED)),
                ByStart::InAscii,
            ),
            Family::Bytes => (Some(widest), ByStart::Always),
            // Unknown characters beside each other are one token.
            Family::Pieces => (complete.then_some(widest), ByStart::Never),
        };
        // A length beyond the table's numbers would be cut short there, and the bound be none.
        let by_start = if widest.is_some_and(|widest| widest < usize::from(u16::MAX)) {
            by_start
        } else {
            ByStart::Never
        };
        Self {
            reach,
            known,
            widest,
            by_start,
        }
    }

    /// The longest token, in bytes of a text; `None` where there is no bound.
    pub(super) const fn widest(&self) -> Option<usize> {
        self.widest
    }

    /// At least so many tokens are in a text.
    pub(super) fn of(&self, text: &str) -> usize {
        let kept = text.bytes().filter(|byte| self.known[usize::from(*byte)]);
        match self.by_start {
            ByStart::Always => self.steps(kept),
            ByStart::InAscii if text.is_ascii() => self.steps(kept),
            _ => self
                .widest
                .map_or(0, |widest| kept.count().div_ceil(widest)),
        }
    }

    /// The text with no more than two at once of the control characters that are no tokens. To every way to cut they are
    /// marks, and two are as many as a hundred.
    pub(super) fn squeezed<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_nothing = |c: char| {
            u8::try_from(c)
                .is_ok_and(|byte| matches!(byte, 0..=8 | 14..=27) && !self.known[usize::from(byte)])
        };
        if self.by_start == ByStart::Never || !text.contains(is_nothing) {
            return Cow::Borrowed(text);
        }
        let mut run = 0;
        let keeps = |c: &char| {
            run = if is_nothing(*c) { run + 1 } else { 0 };
            run <= 2
        };
        Cow::Owned(text.chars().filter(keeps).collect())
    }

    /// The fewest steps from the first byte to past the last, where each goes as far as a token that begins there may reach.
    fn steps(&self, bytes: impl Iterator<Item = u8>) -> usize {
        let mut bytes = bytes.enumerate().peekable();
        let (mut steps, mut end, mut furthest) = (0, 0, 0);
        while let Some((at, first)) = bytes.next() {
            let reach = bytes.peek().map_or(1, |&(_, second)| {
                usize::from(self.reach[pair(first, second)])
            });
            furthest = furthest.max(at + reach);
            if at == end {
                steps += 1;
                end = furthest;
            }
        }
        steps
    }
}

const fn pair(first: u8, second: u8) -> usize {
    (first as usize) << 8 | second as usize
}
