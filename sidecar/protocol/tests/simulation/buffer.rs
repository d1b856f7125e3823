//! Bytes in order, taken from the front.

/// A queue of bytes that lie in one piece. A `VecDeque` would lie in two, and a `Vec` drained in front would be moved with
/// every packet.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Taken already.
    start: usize,
}

impl Buffer {
    /// Memory that is taken is kept up to here, so that moving the rest costs little.
    const LOOSE: usize = 64 * 1024;

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn all(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn all_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    pub(crate) fn take(&mut self, len: usize) {
        self.start += len;
        if self.start == self.bytes.len() {
            self.clear();
        } else if self.start > Self::LOOSE {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}
