//! Which bytes of a segment are here.

use alloc::vec::Vec;

/// How much of a span a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// No byte of it.
    Nothing,
    /// Some bytes of it, but not all.
    Part,
    /// All of it.
    Everything,
}

/// Disjoint, ascending, never adjacent spans `[start, end)`. A vector, because chunks in order make it one span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals(Vec<(u32, u32)>);

impl Intervals {
    /// Forgets all spans and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of spans.
    pub(crate) fn spans(&self) -> usize {
        self.0.len()
    }

    /// Number of bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// How much of `[start, end)` is here; an empty span is not here.
    pub(crate) fn coverage(&self, start: u32, end: u32) -> Coverage {
        let next = self.0.partition_point(|&(_, until)| until <= start);
        match self.0.get(next) {
            Some(&(from, until)) if from <= start && end <= until && start < end => {
                Coverage::Everything
            }
            Some(&(from, _)) if from < end && start < end => Coverage::Part,
            _ => Coverage::Nothing,
        }
    }

    /// Adds `[start, end)`, of which nothing is here.
    pub(crate) fn insert(&mut self, start: u32, end: u32) {
        let next = self.0.partition_point(|&(_, until)| until < start);
        let joins_left = self.0.get(next).is_some_and(|&(_, until)| until == start);
        let right = next + usize::from(joins_left);
        let joins_right = self.0.get(right).is_some_and(|&(from, _)| from == end);
        match (joins_left, joins_right) {
            (true, true) => {
                let (_, until) = self.0.remove(right);
                self.0[next].1 = until;
            }
            (true, false) => self.0[next].1 = end,
            (false, true) => self.0[right].0 = start,
            (false, false) => self.0.insert(next, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests;
