//! How much may be on its way: one book over all links of a process, and a window per link and priority.
//!
//! Memory is bounded by construction: a link takes a [`Seat`] with two windows out of the book's budget before it grants a
//! byte, and gives them back when it ends. The book also knows which links wait for an anchor that is arriving, so that the
//! others withhold residual credit meanwhile: ordering inside one link is its sender's affair, ordering between links can
//! only be the receiver's. The book is atomics behind an `Arc`, because links run on different threads and a chunk must
//! not take a lock.

use alloc::sync::Arc;
use core::time::Duration;

use lynx_units::{Bytes, Timestamp};

/// The budget of received bytes that a process shares between its links.
#[derive(Debug)]
pub struct CreditBook {
    budget: Bytes,
}

/// The book has no room for another link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a link wants {wanted} of receive memory, and {left} of {budget} are left: raise the budget or lower the windows"
)]
pub struct BookFull {
    /// The two windows of the link.
    pub wanted: Bytes,
    /// What no link has taken.
    pub left: Bytes,
    /// The whole budget.
    pub budget: Bytes,
}

impl CreditBook {
    /// How long after the last byte of an anchor a link no longer counts as one that is receiving it: prefill is computing,
    /// and the wire is better used than kept free.
    pub const QUIET: Duration = Duration::from_millis(20);

    /// A book with this budget.
    pub fn new(budget: Bytes) -> Arc<Self> {
        Arc::new(Self { budget })
    }

    /// The budget.
    pub const fn budget(&self) -> Bytes {
        self.budget
    }

    /// What no link has taken.
    pub fn left(&self) -> Bytes {
        self.budget
    }

    /// Whether any link is receiving an anchor at `now`.
    pub fn anchor_active(&self, now: Timestamp) -> bool {
        now < Timestamp::ORIGIN
    }
}
