//! Which bytes next.
//!
//! Two queues of whole segments, one per priority, each ordered by deadline, then transfer, then level, then unit. A
//! segment that has been started is finished before another of its priority starts, so that a receiver holds one partial
//! segment per priority and not one per transfer; between the priorities, preemption is at every chunk. It knows neither
//! sockets nor time, and there is no third priority: what deserves one has a deadline.

use alloc::collections::BTreeMap;

use lynx_units::{Bytes, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use crate::limits::MIN_CHUNK;

/// A segment's place in its queue: the smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) deadline: Timestamp,
    pub(crate) transfer: TransferId,
    pub(crate) level: u8,
    pub(crate) unit: UnitIndex,
    pub(crate) segment: SegmentIndex,
}

impl Key {
    /// Before every segment of a transfer.
    const fn first(deadline: Timestamp, transfer: TransferId) -> Self {
        Self {
            deadline,
            transfer,
            level: 0,
            unit: UnitIndex(0),
            segment: SegmentIndex(0),
        }
    }

    /// After every segment of a transfer.
    const fn last(deadline: Timestamp, transfer: TransferId) -> Self {
        Self {
            deadline,
            transfer,
            level: u8::MAX,
            unit: UnitIndex(u32::MAX),
            segment: SegmentIndex(u16::MAX),
        }
    }
}

/// What is sent of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) len: u32,
    pub(crate) checksum: u64,
}

/// The next bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    pub(crate) whole: Whole,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl Piece {
    /// Whether nothing of the segment is left after it.
    pub(crate) const fn ends_segment(&self) -> bool {
        self.offset + self.len == self.whole.len
    }
}

/// How far a priority could go on, in order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Readiness {
    /// There is nothing to send.
    Idle,
    /// There is something, but the receiver has not granted enough.
    Blocked,
    /// A chunk can go.
    Ready,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Key, Whole>,
    /// The segment being cut, and how much of it is gone.
    current: Option<(Key, Whole, u32)>,
}

/// The two queues.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    queues: [Queue; 2],
}

impl Scheduler {
    /// Adds a segment.
    pub(crate) fn push(&mut self, priority: Priority, key: Key, whole: Whole) {
        self.queue_mut(priority).waiting.insert(key, whole);
    }

    /// Forgets everything of a transfer.
    pub(crate) fn remove(&mut self, deadline: Timestamp, transfer: TransferId) {
        let range = Key::first(deadline, transfer)..=Key::last(deadline, transfer);
        for queue in &mut self.queues {
            queue.current = queue
                .current
                .take()
                .filter(|(key, ..)| !range.contains(key));
            queue
                .waiting
                .extract_if(range.clone(), |_, _| true)
                .for_each(drop);
        }
    }

    /// Whether a priority can go on with `credit` bytes.
    pub(crate) fn readiness(&self, priority: Priority, credit: Bytes) -> Readiness {
        match self.queue(priority).rest() {
            None => Readiness::Idle,
            Some(rest) if cut(rest, MIN_CHUNK, credit).is_some() => Readiness::Ready,
            Some(_) => Readiness::Blocked,
        }
    }

    /// Takes the next piece of a priority: at most `chunk` bytes (at least [`MIN_CHUNK`]) and `credit` bytes. `None` where
    /// the priority isn't [`Readiness::Ready`].
    pub(crate) fn next(&mut self, priority: Priority, chunk: u32, credit: Bytes) -> Option<Piece> {
        let queue = self.queue_mut(priority);
        let len = cut(queue.rest()?, chunk, credit)?;
        let (key, whole, offset) = match queue.current.take() {
            Some(current) => current,
            None => {
                let (key, whole) = queue.waiting.pop_first()?;
                (key, whole, 0)
            }
        };
        let piece = Piece {
            key,
            whole,
            offset,
            len,
        };
        if !piece.ends_segment() {
            queue.current = Some((key, whole, offset + len));
        }
        Some(piece)
    }

    fn queue(&self, priority: Priority) -> &Queue {
        &self.queues[priority.index()]
    }

    fn queue_mut(&mut self, priority: Priority) -> &mut Queue {
        &mut self.queues[priority.index()]
    }
}

impl Queue {
    /// What is left of the next segment.
    fn rest(&self) -> Option<u32> {
        match self.current {
            Some((_, whole, sent)) => Some(whole.len - sent),
            None => self.waiting.first_key_value().map(|(_, whole)| whole.len),
        }
    }
}

/// How much of `rest` bytes to send: a chunk or what is left. Where credit allows less, so much, unless it would be a
/// crumb: the receiver always grants [`MIN_CHUNK`] or the rest of a segment sooner or later.
fn cut(rest: u32, chunk: u32, credit: Bytes) -> Option<u32> {
    let want = rest.min(chunk);
    let allowed = u32::try_from(credit.get()).unwrap_or(u32::MAX);
    let len = want.min(allowed);
    (len == want || len >= MIN_CHUNK).then_some(len)
}

#[cfg(test)]
mod tests;
