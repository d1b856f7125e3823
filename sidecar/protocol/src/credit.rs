//! How much may be on its way: one book over all links of a process, and a window per link and priority.
//!
//! Memory is bounded by construction: a link takes a seat with two windows out of the book's budget before it grants a
//! byte, and gives them back when it ends. The book also knows which links wait for an anchor that is arriving, so that the
//! others withhold residual credit meanwhile: ordering inside one link is its sender's affair, ordering between links can
//! only be the receiver's. The book is atomics behind an `Arc`, because links run on different threads and a chunk must
//! not take a lock.

mod window;
mod withhold;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use lynx_units::{Bytes, Timestamp};

pub(crate) use window::Window;
pub(crate) use withhold::Withhold;

/// Most links that one book serves.
pub const MAX_LINKS: usize = 256;

/// A seat that nobody has.
const FREE: u64 = u64::MAX;

/// The budget of received bytes that a process shares between its links, and who is receiving an anchor. All its links
/// read one clock.
#[derive(Debug)]
pub struct CreditBook {
    budget: Bytes,
    taken: AtomicU64,
    /// By seat: until when its link counts as receiving an anchor, in nanoseconds of the clock; [`FREE`] where nobody sits.
    active_until: Vec<AtomicU64>,
    /// By seat: the same of residuals; zero where nobody sits.
    bulk_until: Vec<AtomicU64>,
}

/// The book has no room for another link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookFull {
    /// Not enough memory.
    #[error(
        "a link wants {wanted} of receive memory, and {left} of {budget} are left: raise the budget or lower the windows"
    )]
    Memory {
        /// The two windows of the link.
        wanted: Bytes,
        /// What no link has taken.
        left: Bytes,
        /// The whole budget.
        budget: Bytes,
    },
    /// Too many links.
    #[error("{MAX_LINKS} links are receiving already, the most there may be: close one")]
    Links,
}

impl CreditBook {
    /// How long after the last byte of an anchor a link no longer counts as one that is receiving it: prefill is computing,
    /// and the wire is better used than kept free. The same of residuals.
    pub const QUIET: Duration = Duration::from_millis(50);

    /// A book with this budget.
    pub fn new(budget: Bytes) -> Arc<Self> {
        Arc::new(Self {
            budget,
            taken: AtomicU64::new(0),
            active_until: (0..MAX_LINKS).map(|_| AtomicU64::new(FREE)).collect(),
            bulk_until: (0..MAX_LINKS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// The budget.
    pub const fn budget(&self) -> Bytes {
        self.budget
    }

    /// What no link has taken.
    pub fn left(&self) -> Bytes {
        self.budget - Bytes::new(self.taken.load(Ordering::Relaxed))
    }

    /// Whether any link is receiving an anchor at `now`.
    pub fn anchor_active(&self, now: Timestamp) -> bool {
        self.active_except(None, now)
    }

    fn active_except(&self, except: Option<usize>, now: Timestamp) -> bool {
        let now = nanos(now);
        self.active_until.iter().enumerate().any(|(seat, until)| {
            let until = until.load(Ordering::Relaxed);
            Some(seat) != except && until != FREE && until > now
        })
    }

    fn take(&self, wanted: Bytes) -> Result<(), BookFull> {
        let take = |taken: u64| {
            let total = taken.checked_add(wanted.get())?;
            (total <= self.budget.get()).then_some(total)
        };
        // Relaxed: the counter guards no other memory.
        match self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Ok(()),
            Err(taken) => Err(BookFull::Memory {
                wanted,
                left: self.budget - Bytes::new(taken),
                budget: self.budget,
            }),
        }
    }

    fn give_back(&self, bytes: Bytes) {
        self.taken.fetch_sub(bytes.get(), Ordering::Relaxed);
    }
}

/// A link's share of a book; dropped, it gives back what it took.
#[derive(Debug)]
pub(crate) struct Seat {
    book: Arc<CreditBook>,
    number: usize,
    bytes: Bytes,
}

impl Seat {
    /// Takes a seat with `bytes` of the budget.
    pub(crate) fn take(book: &Arc<CreditBook>, bytes: Bytes) -> Result<Self, BookFull> {
        book.take(bytes)?;
        let sit = |until: &AtomicU64| {
            until
                .compare_exchange(FREE, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        match book.active_until.iter().position(sit) {
            Some(number) => Ok(Self {
                book: Arc::clone(book),
                number,
                bytes,
            }),
            None => {
                book.give_back(bytes);
                Err(BookFull::Links)
            }
        }
    }

    /// An anchor is arriving on this link at `now`.
    pub(crate) fn anchor_arrives(&self, now: Timestamp) {
        // A clock has no such late moment as FREE.
        let until = nanos(now + CreditBook::QUIET).min(FREE - 1);
        self.book.active_until[self.number].store(until, Ordering::Relaxed);
    }

    /// This link waits for no anchor any more.
    pub(crate) fn no_anchor(&self) {
        self.book.active_until[self.number].store(0, Ordering::Relaxed);
    }

    /// A residual is arriving on this link at `now`.
    pub(crate) fn bulk_arrives(&self, now: Timestamp) {
        let until = nanos(now + CreditBook::QUIET);
        self.book.bulk_until[self.number].store(until, Ordering::Relaxed);
    }

    /// How many links are receiving residuals at `now`, this one among them in any case.
    pub(crate) fn sharing(&self, now: Timestamp) -> u64 {
        let now = nanos(now);
        let others = self.book.bulk_until.iter().enumerate();
        let others = others
            .filter(|(seat, until)| *seat != self.number && until.load(Ordering::Relaxed) > now);
        // At most MAX_LINKS.
        1 + u64::try_from(others.count()).unwrap_or(0)
    }

    /// Whether another link is receiving an anchor.
    pub(crate) fn others_active(&self, now: Timestamp) -> bool {
        self.book.active_except(Some(self.number), now)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.book.bulk_until[self.number].store(0, Ordering::Relaxed);
        self.book.active_until[self.number].store(FREE, Ordering::Relaxed);
        self.book.give_back(self.bytes);
    }
}

fn nanos(moment: Timestamp) -> u64 {
    u64::try_from(moment.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
