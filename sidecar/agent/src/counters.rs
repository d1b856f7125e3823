//! What an agent counts, for its metrics and for what it reports to the operator.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// Everything that is counted. Shared by those who count and those who read.
#[derive(Debug, Default)]
pub struct Counters {
    /// Transfers that were begun.
    pub transfers_begun: Counter,
    /// Transfers whose every byte the decode agent has.
    pub transfers_complete: Counter,
    /// Transfers that failed.
    pub transfers_failed: Counter,
    /// Transfers that their decode agent no longer wanted.
    pub transfers_cancelled: Counter,
    /// The KV of begun transfers as BF16, in bytes.
    pub transfer_kv_bytes: Counter,
    /// Split bytes of anchors: handed to links by a prefill agent, got from them by a decode agent.
    pub anchor_bytes: Counter,
    /// Split bytes of residuals, likewise.
    pub residual_bytes: Counter,
    /// Prefill: time that was spent splitting, in nanoseconds.
    pub split_ns: Counter,
    /// Decode: requests that were taken.
    pub requests: Counter,
    /// Decode: requests that were answered.
    pub requests_finished: Counter,
    /// Decode: requests that were refused, or failed.
    pub requests_failed: Counter,
    /// Decode: requests whose client went away.
    pub requests_aborted: Counter,
    /// Decode: requests whose prompt the engine computed itself, because no KV came.
    pub requests_local: Counter,
    /// Decode: why KV did not come.
    pub kv_failures: KvFailures,
    /// Decode: tokens that were drafted and compared with the full KV.
    pub drafted_tokens: Counter,
    /// Decode: drafted tokens that stood.
    pub accepted_tokens: Counter,
    /// Decode: tokens that were told as verified.
    pub verified_tokens: Counter,
    /// Decode: anchors that were merged.
    pub anchors: Counter,
    /// Decode: from the transfer's start until the anchor was merged, in nanoseconds.
    pub time_to_anchor_ns: Counter,
    /// Decode: from the transfer's start until all was merged, in nanoseconds, of complete transfers.
    pub time_to_full_ns: Counter,
}

/// Why KV did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFailure {
    /// No prefill agent could be asked.
    NoPeer,
    /// The prefill agent refused, or failed.
    Peer,
    /// The link was lost.
    Link,
    /// It did not come in time.
    Deadline,
    /// What came could not be merged, or was not what was asked for.
    Content,
}

/// How often KV did not come, by reason.
#[derive(Debug, Default)]
pub struct KvFailures([Counter; KvFailure::ALL.len()]);

impl KvFailure {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::NoPeer,
        Self::Peer,
        Self::Link,
        Self::Deadline,
        Self::Content,
    ];

    /// A short name, for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPeer => "no-peer",
            Self::Peer => "peer",
            Self::Link => "link",
            Self::Deadline => "deadline",
            Self::Content => "content",
        }
    }
}

impl KvFailures {
    /// The count of one reason.
    pub const fn of(&self, failure: KvFailure) -> &Counter {
        &self.0[failure as usize]
    }
}

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
