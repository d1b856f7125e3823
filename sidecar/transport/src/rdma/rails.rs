//! The rails of a stream: which one the next message goes by, in which order what came is read, and what becomes of that which a failed
//! rail had.
//!
//! A rail is a queue pair with a ring of its own, and messages go by whichever has the least to do. They have numbers, by which
//! the reading side brings them in order. A rail that fails is taken out: what it had and isn't known to be with the peer goes by another
//! one, under the same number, and who has read a number already skips it. The peer learns of it by a word on another rail, and
//! takes out its end. No byte can come late: a failed rail's ring is written by nobody else.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::Loss;
use super::incoming::{Immediate, Violation};
use super::number::Number;
use super::outgoing::Kept;
use super::rail::Rail;

/// What a rail is taken out for whose peer says that it has failed.
const OF_PEER: &str = "the peer's end of it has failed";

/// How far the stream may be ahead of its first message that isn't known to be with the peer, in messages and in bytes. The peer
/// can't take out what comes after that one, and a rail has twice this room: what another one loses finds some.
const MOST_AHEAD: u16 = 32;
const MOST_BYTES_AHEAD: u64 = 4 << 20;

/// Rails, one at least.
#[derive(Debug)]
pub(super) struct Rails {
    rails: Vec<Rail>,
    /// Which were taken out, and whether the peer has been told since the last was.
    out: Vec<Out>,
    /// Those of them that nobody was told of.
    losses: Vec<Loss>,
    /// What they had, and the places where it is kept.
    lost: VecDeque<(usize, Kept)>,
    /// The numbers of the message that is written next and of the one that is read next.
    written: Number,
    read: Number,
    /// How many bytes were written.
    at: u64,
    /// The rail of which the latter is read, once that has begun: another one may have brought it again.
    reading: Option<usize>,
    /// Where the search for a rail begins.
    turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Out {
    rail: usize,
    is_told: bool,
}

/// No rail is left.
#[derive(Debug, thiserror::Error)]
pub(super) enum RailsError {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("{0}")]
    AllOut(String),
}

impl Rails {
    pub(super) fn new(rails: Vec<Rail>) -> Self {
        Self {
            rails,
            out: Vec::new(),
            losses: Vec::new(),
            lost: VecDeque::new(),
            written: Number::default(),
            read: Number::default(),
            at: 0,
            reading: None,
            turn: 0,
        }
    }

    /// Writes the first words on all of them.
    pub(super) fn greet(&mut self) {
        self.rails.iter_mut().for_each(Rail::greet);
    }

    /// Whether the first one is as it should be. The others may come later, or not.
    pub(super) fn is_up(&self) -> bool {
        self.rails.first().is_some_and(Rail::is_usable)
    }

    /// How many there were at first.
    pub(super) fn count(&self) -> usize {
        self.rails.len()
    }

    /// How many can be used.
    #[cfg(test)]
    pub(super) fn usable(&self) -> usize {
        self.rails.iter().filter(|rail| rail.is_usable()).count()
    }

    /// Ready where one that hasn't failed may have done something.
    pub(super) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let alive = self.rails.iter().filter(|rail| rail.failure().is_none());
        let mut ready = Poll::Pending;
        for rail in alive {
            if rail.poll_ready(context).is_ready() {
                ready = Poll::Ready(());
            }
        }
        ready
    }

    /// Takes what the cards have done, takes out rails that have failed, and has others do what those had.
    pub(super) fn hear(&mut self) -> Result<(), RailsError> {
        let mut of_peer = Vec::new();
        for rail in &mut self.rails {
            rail.hear(|out| of_peer.push(out))?;
        }
        for out in of_peer {
            let rail = usize::try_from(out).ok();
            if let Some(rail) = rail.and_then(|out| self.rails.get_mut(out)) {
                rail.fail(OF_PEER);
            }
        }
        loop {
            self.take_out()?;
            self.write_lost();
            self.tell_out();
            // What was written just now may have shown that one more has failed.
            if self.failed().count() == self.out.len() {
                return Ok(());
            }
        }
    }

    fn failed(&self) -> impl Iterator<Item = usize> {
        let rails = self.rails.iter().enumerate();
        rails.filter_map(|(index, rail)| rail.failure().map(|_| index))
    }

    fn take_out(&mut self) -> Result<(), RailsError> {
        let known = |rail: &usize| self.out.iter().any(|out| out.rail == *rail);
        let new: Vec<usize> = self.failed().filter(|rail| !known(rail)).collect();
        for &rail in &new {
            let kept = self.rails[rail].lose();
            self.lost.extend(kept.map(|kept| (rail, kept)));
            self.out.push(Out {
                rail,
                is_told: false,
            });
            // A word may have been with this one.
            self.out.iter_mut().for_each(|out| out.is_told = false);
            let next = self.written;
            let lost = self.lost.make_contiguous();
            lost.sort_by_key(|(_, kept)| std::cmp::Reverse(kept.number.behind(next)));
        }
        match self.out.last() {
            Some(last) if self.out.len() == self.rails.len() => {
                let why = self.rails[last.rail].failure().unwrap_or(OF_PEER);
                Err(RailsError::AllOut(why.to_owned()))
            }
            _ => {
                let left = self.rails.len() - self.out.len();
                let losses = new.iter().map(|rail| self.rails[*rail].loss(left));
                self.losses.extend(losses);
                Ok(())
            }
        }
    }

    /// The cards that were lost since this was asked last; none of those with which the stream ended.
    pub(super) fn losses(&mut self) -> impl Iterator<Item = Loss> {
        self.losses.drain(..)
    }

    fn write_lost(&mut self) {
        while let Some((from, kept)) = self.lost.front().cloned()
            && let Some(to) = self.choose(kept.len())
            && self.rails[to].room(kept.len()) == kept.len()
        {
            let (place, length) = ((kept.number, kept.at), kept.len());
            let staged = self.rails[from].kept(kept.staged);
            self.rails[to].write(place, &[IoSlice::new(&staged)], &kept.payload, length);
            self.lost.pop_front();
        }
    }

    fn tell_out(&mut self) {
        for out in self.out.iter_mut().filter(|out| !out.is_told) {
            let mut rails = self.rails.iter_mut();
            if let Some(rail) = rails.find(|rail| rail.is_usable() && rail.may_say()) {
                rail.say(Immediate::Out(u32::try_from(out.rail).unwrap_or(u32::MAX)));
                out.is_told = true;
            }
        }
    }

    /// The rail with the least to do of those with the most room for so many bytes; the next one of equals.
    fn choose(&self, wanted: usize) -> Option<usize> {
        let count = self.rails.len();
        let indices = (self.turn..count).chain(0..self.turn);
        let with_room = indices.filter(|index| self.rails[*index].room(wanted) > 0);
        with_room.min_by_key(|index| {
            let rail = &self.rails[*index];
            (std::cmp::Reverse(rail.room(wanted)), rail.load())
        })
    }

    /// Writes a message of some of these bytes and of the payload behind them; how many, none where no rail has room.
    pub(super) fn write(&mut self, from: &[IoSlice<'_>], payload: &Bytes) -> Option<usize> {
        let before: usize = from.iter().map(|part| part.len()).sum();
        let wanted = before + payload.len();
        if wanted == 0 {
            return Some(0);
        }
        // What was lost goes first: the peer waits for it.
        let rail = self.choose(wanted).filter(|_| self.lost.is_empty())?;
        let room = self.rails[rail].room(wanted);
        if self.is_too_far_with(room) {
            // Of short messages not each is told.
            let alive = self
                .rails
                .iter_mut()
                .filter(|rail| rail.failure().is_none());
            alive.for_each(Rail::ask);
            return None;
        }
        self.rails[rail].write((self.written, self.at), from, payload, room);
        self.written = self.written.next();
        self.at += room as u64;
        self.turn = (rail + 1) % self.rails.len();
        Some(room)
    }

    /// Whether a message of so many bytes more would be too far ahead.
    fn is_too_far_with(&self, bytes: usize) -> bool {
        let oldest = self.rails.iter().filter_map(Rail::oldest);
        oldest.min_by_key(|kept| kept.at).is_some_and(|kept| {
            kept.number.behind(self.written) >= MOST_AHEAD
                || self.at - kept.at + bytes as u64 > MOST_BYTES_AHEAD
        })
    }

    /// Reads what is there; how much.
    pub(super) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < into.len()
            && let Some(rail) = self.reading()
        {
            let part = into.get_mut(filled..).unwrap_or_default();
            let (bytes, is_end) = self.rails[rail].read(self.read, part);
            filled += bytes;
            self.reading = Some(rail).filter(|_| !is_end);
            if is_end {
                self.read = self.read.next();
                for rail in &mut self.rails {
                    rail.give_back(self.read);
                }
            }
        }
        filled
    }

    /// The rail by which the next message came.
    fn reading(&self) -> Option<usize> {
        let has_it = |rail: &Rail| rail.has(self.read);
        let found = || self.rails.iter().position(has_it);
        self.reading.or_else(found)
    }

    /// Tells the peer what is taken out of each.
    pub(super) fn tell(&mut self) {
        self.rails.iter_mut().for_each(Rail::tell);
    }

    /// Whether all that was written is in the peer's memory; where that isn't known, the cards are asked.
    pub(super) fn is_done(&mut self) -> bool {
        let alive = self
            .rails
            .iter_mut()
            .filter(|rail| rail.failure().is_none());
        let mut done = self.lost.is_empty();
        for rail in alive {
            rail.ask();
            done &= rail.is_idle();
        }
        done
    }
}

#[cfg(test)]
mod tests;
