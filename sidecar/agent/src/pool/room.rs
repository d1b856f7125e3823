//! Which bytes of a file are taken.

use std::collections::BTreeMap;

/// Where every piece begins: what a GPU's copies and the codec's words like.
const STEP: usize = 16;

/// Pieces of so many bytes, none of which overlap.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    /// Ends by their starts.
    taken: BTreeMap<usize, usize>,
}

impl Room {
    pub(super) const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            taken: BTreeMap::new(),
        }
    }

    /// Takes the first free piece of so many bytes; where it starts.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let start = self.find(bytes)?;
        self.taken.insert(start, start + bytes.max(1));
        Some(start)
    }

    /// Whether a piece of so many bytes is free.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.find(bytes).is_some()
    }

    fn find(&self, bytes: usize) -> Option<usize> {
        let mut start = 0usize;
        for (&taken, &end) in &self.taken {
            if taken.checked_sub(start)? >= bytes.max(1) {
                break;
            }
            start = end.next_multiple_of(STEP);
        }
        let end = start.checked_add(bytes.max(1))?;
        (end <= self.bytes).then_some(start)
    }

    /// Gives back what of a piece lies behind its first `bytes`.
    pub(super) fn shrink(&mut self, start: usize, bytes: usize) {
        if let Some(end) = self.taken.get_mut(&start) {
            *end = (*end).min(start + bytes.max(1));
        }
    }

    /// Gives a piece back.
    pub(super) fn give_back(&mut self, start: usize) {
        self.taken.remove(&start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, bolero::TypeGenerator)]
    enum Op {
        Take(u8),
        Shrink(u8, u8),
        GiveBack(u8),
    }

    /// Each byte by itself.
    fn is_free(pieces: &[(usize, usize)], start: usize, bytes: usize) -> bool {
        let is_in = |byte: usize| pieces.iter().any(|(at, end)| (*at..*end).contains(&byte));
        (start..start + bytes).all(|byte| byte < BYTES && !is_in(byte))
    }

    const BYTES: usize = 300;

    #[test]
    fn pieces_never_overlap_and_are_found_where_there_is_one() {
        bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
            let mut room = Room::new(BYTES);
            let mut pieces: Vec<(usize, usize)> = Vec::new();
            for op in ops {
                match *op {
                    Op::Take(bytes) => {
                        let bytes = usize::from(bytes).max(1);
                        let starts = (0..BYTES).step_by(STEP);
                        let first = starts.clone().find(|at| is_free(&pieces, *at, bytes));
                        assert_eq!(room.has(bytes), first.is_some());
                        assert_eq!(room.take(bytes), first, "{bytes} beside {pieces:?}");
                        pieces.extend(first.map(|start| (start, start + bytes)));
                    }
                    Op::Shrink(which, bytes) => {
                        let Some(at) = usize::from(which).checked_rem(pieces.len()) else {
                            continue;
                        };
                        let (start, end) = &mut pieces[at];
                        room.shrink(*start, bytes.into());
                        *end = (*end).min(*start + usize::from(bytes).max(1));
                    }
                    Op::GiveBack(which) => {
                        if let Some(at) = usize::from(which).checked_rem(pieces.len()) {
                            room.give_back(pieces.swap_remove(at).0);
                        }
                    }
                }
            }
        });
    }
}
