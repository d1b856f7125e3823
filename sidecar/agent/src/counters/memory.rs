//! Pools of memory, each with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Counters;
use crate::config::Role;

/// A pool of memory that the configuration bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Decode: what links may have on its way to this agent: granted, and not yet merged.
    Receive,
    /// Decode: the KV of transfers under way, as BF16, until all of it is merged.
    Merge,
    /// Prefill: what is split and not sent.
    Split,
    /// Prefill: messages of peer control that are not answered yet.
    Messages,
}

/// Bytes of one pool.
#[derive(Debug, Default)]
pub struct Usage {
    taken: AtomicU64,
    limit: AtomicU64,
}

/// All pools.
#[derive(Debug, Default)]
pub struct Pools([Usage; 4]);

impl Pool {
    /// The pools of an agent of this role.
    pub const fn of(role: Role) -> &'static [Self] {
        match role {
            Role::Decode => &[Self::Receive, Self::Merge],
            Role::Prefill => &[Self::Split, Self::Messages],
        }
    }

    /// A short name, for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Merge => "merge",
            Self::Split => "split",
            Self::Messages => "messages",
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
        self.set_limit(limit);
    }

    /// Sets the bound, in bytes.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// So many bytes more are taken.
    pub fn add(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes so many bytes more if they are within the bound.
    pub fn try_add(&self, bytes: u64) -> bool {
        let limit = self.limit();
        let within = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= limit);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        taken.is_ok()
    }

    /// So many bytes are given back.
    pub fn sub(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
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

/// Bytes of a pool, taken until this is dropped.
#[derive(Debug)]
pub struct InUse {
    counters: Arc<Counters>,
    pool: Pool,
    bytes: u64,
}

impl InUse {
    /// Takes bytes out of a pool that has one owner; `None` where the bound leaves none. What is alone there always finds
    /// room, or it never would.
    pub fn take(counters: &Arc<Counters>, pool: Pool, bytes: u64) -> Option<Self> {
        let usage = counters.memory.of(pool);
        let taken = usage.taken();
        if taken > 0 && taken.saturating_add(bytes) > usage.limit() {
            return None;
        }
        usage.add(bytes);
        let counters = Arc::clone(counters);
        Some(Self {
            counters,
            pool,
            bytes,
        })
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.counters.memory.of(self.pool).sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_what_it_has_and_whatever_is_asked_where_nothing_is_taken() {
        let counters = Arc::<Counters>::default();
        counters.memory.of(Pool::Merge).set_limit(100);
        let take = |bytes| InUse::take(&counters, Pool::Merge, bytes);
        let large = take(1000).unwrap();
        assert!(take(1).is_none());
        drop(large);
        let (one, two) = (take(60).unwrap(), take(40).unwrap());
        assert!(take(1).is_none());
        drop(one);
        assert_eq!(counters.memory.of(Pool::Merge).taken(), 40);
        drop(two);
    }
}
