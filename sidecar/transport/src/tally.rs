//! A number that grows, shared by who counts and who reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often something happened. Clones are the same number.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    /// It has happened once more.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has happened.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
