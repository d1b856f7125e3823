//! Pools of memory, each with a bound.

use std::sync::atomic::{AtomicU64, Ordering};

/// A pool of memory that the configuration bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// What links may have on its way to this agent: granted, and not yet merged.
    Receive,
}

/// Bytes of one pool.
#[derive(Debug, Default)]
pub struct Usage {
    taken: AtomicU64,
    limit: AtomicU64,
}

/// All pools.
#[derive(Debug, Default)]
pub struct Pools([Usage; Pool::ALL.len()]);

impl Pool {
    /// Every pool.
    pub const ALL: [Self; 1] = [Self::Receive];

    /// A short name, for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
        }
    }
}

impl Pools {
    /// One of them.
    pub const fn of(&self, pool: Pool) -> &Usage {
        &self.0[pool as usize]
    }
}

impl Usage {
    /// So much of so much is taken, in bytes.
    pub fn set(&self, taken: u64, limit: u64) {
        self.taken.store(taken, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// What is taken, in bytes.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The bound, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}
