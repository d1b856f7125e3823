//! The names of transfers that are over.
//!
//! A name is used once in an epoch, or a late residual chunk of its first life could be merged into the second. The memory
//! is bounded: so many transfers can't end while one chunk is on its way, as a connection that stands still is cut off.

use alloc::collections::{BTreeSet, VecDeque};

use lynx_units::TransferId;

const REMEMBERED: usize = 4096;

/// The last names that were used up.
#[derive(Debug, Default)]
pub(crate) struct History {
    names: BTreeSet<TransferId>,
    order: VecDeque<TransferId>,
}

impl History {
    /// Remembers a name, and forgets the oldest where there are too many.
    pub(crate) fn add(&mut self, transfer: TransferId) {
        if self.names.insert(transfer) {
            self.order.push_back(transfer);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, transfer: TransferId) -> bool {
        self.names.contains(&transfer)
    }
}

#[cfg(test)]
mod tests;
