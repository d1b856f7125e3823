//! Memory of somebody else's that a card reads.
#![expect(unsafe_code, reason = "memory that its owner vouches for")]

use std::fmt::Debug;
use std::ops::Range;

/// Memory that is lent to cards, which read it while others fill it: whose a piece of it is, its owner knows.
///
/// # Safety
/// From [`start`](Self::start) on [`bytes`](Self::bytes) bytes are mapped, and readable, for as long as the value lives; both always
/// return the same.
pub unsafe trait Lendable: Debug + Send + Sync {
    /// Its first byte.
    fn start(&self) -> *const u8;

    /// Its length in bytes.
    fn bytes(&self) -> usize;

    /// Where in it these bytes lie; `None` where they don't, or not all.
    fn find(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let start = bytes.as_ptr().addr().checked_sub(self.start().addr())?;
        let end = start.checked_add(bytes.len())?;
        (end <= self.bytes()).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Owned(Box<[u8]>);

    // SAFETY: the box keeps its bytes where they are.
    unsafe impl Lendable for Owned {
        fn start(&self) -> *const u8 {
            self.0.as_ptr()
        }

        fn bytes(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    fn bytes_are_found_where_they_are_and_nowhere_else() {
        let owned = Owned((0..100).collect());
        assert_eq!(owned.find(&owned.0), Some(0..100));
        assert_eq!(owned.find(&owned.0[30..40]), Some(30..40));
        assert_eq!(owned.find(&owned.0[100..]), Some(100..100));
        let others: Box<[u8]> = (0..100).collect();
        assert_eq!(owned.find(&others), None);
        let half = Owned(owned.0[..50].into());
        assert_eq!(half.find(&owned.0[..50]), None);
    }
}
