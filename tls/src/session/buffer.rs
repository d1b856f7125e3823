//! Bytes on their way through, and where plaintext goes.

use std::io::IoSliceMut;

/// Bytes that are added at the end and taken at the front.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// With room for so many bytes, and never more unless asked for.
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            bytes: vec![0; room],
            start: 0,
            end: 0,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Forgets the first `count` bytes.
    pub(super) fn taken(&mut self, count: usize) {
        self.start += count.min(self.end - self.start);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Where more can go: all the room that there is.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Where at least `count` more can go.
    pub(super) fn room_for(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() < self.end + count {
            self.bytes.resize(self.end + count, 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// So many bytes of the room are used now.
    pub(super) fn added(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    pub(super) fn push(&mut self, more: &[u8]) {
        if let Some(room) = self.room_for(more.len()).get_mut(..more.len()) {
            room.copy_from_slice(more);
        }
        self.added(more.len());
    }

    /// Whether nothing more can come before something is taken.
    pub(super) fn is_full(&self) -> bool {
        self.end - self.start == self.bytes.len()
    }
}

/// Places for plaintext, in order.
pub(super) struct Placing<'a, 'b> {
    into: &'a mut [IoSliceMut<'b>],
    /// The part that is next, and how much of it is full.
    part: usize,
    filled: usize,
    placed: usize,
}

impl<'a, 'b> Placing<'a, 'b> {
    pub(super) fn into(into: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            into,
            part: 0,
            filled: 0,
            placed: 0,
        }
    }

    pub(super) fn nowhere() -> Self {
        Self::into(&mut [])
    }

    /// Copies what fits, and says how much that is.
    pub(super) fn place(&mut self, mut plaintext: &[u8]) -> usize {
        let before = self.placed;
        while let Some(part) = self.into.get_mut(self.part) {
            let room = part.get_mut(self.filled..).unwrap_or_default();
            let count = room.len().min(plaintext.len());
            let (now, later) = plaintext.split_at(count);
            if let Some(room) = room.get_mut(..count) {
                room.copy_from_slice(now);
            }
            self.filled += count;
            self.placed += count;
            plaintext = later;
            if plaintext.is_empty() {
                break;
            }
            self.part += 1;
            self.filled = 0;
        }
        self.placed - before
    }

    pub(super) fn has_room(&self) -> bool {
        let rest = self.into.get(self.part..).unwrap_or_default();
        rest.iter().map(|part| part.len()).sum::<usize>() > self.filled
    }

    pub(super) fn placed(&self) -> usize {
        self.placed
    }
}
