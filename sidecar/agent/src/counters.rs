//! What an agent counts, for its metrics and for what it reports to the operator.
//!
//! Atomics, and memory that is there from the start: whoever counts never waits and never allocates. What links count
//! themselves is read from them ([`Links`]), when somebody asks.

mod drafts;
mod histogram;
mod links;
mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lynx_metrics::agent;
use lynx_transport::Tally;

pub use self::drafts::{Drafts, WidthDrafts};
pub use self::histogram::{Histogram, Observed};
pub use self::links::{Counted, LinkSums, Links};
pub use self::memory::{InUse, Pool, Pools, Usage};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A number that is as it was set last.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// It is this from now on.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted. Shared by those who count and those who read.
#[derive(Debug)]
pub struct Counters {
    /// Transfers that were begun.
    pub transfers_begun: Counter,
    /// Transfers whose every byte the decode agent has.
    pub transfers_complete: Counter,
    /// Transfers that failed.
    pub transfers_failed: Counter,
    /// Decode: transfers that failed before anything came of them, so that another peer was asked.
    pub transfers_retried: Counter,
    /// Transfers that their decode agent no longer wanted.
    pub transfers_cancelled: Counter,
    /// The KV of begun transfers as BF16, in bytes.
    pub transfer_kv_bytes: Counter,
    /// Split bytes of anchors: handed to links by a prefill agent, got from them by a decode agent.
    pub anchor_bytes: Counter,
    /// Split bytes of residuals, likewise.
    pub residual_bytes: Counter,
    /// Prefill: tokens of prompts that the engine computes, and that its prefix cache had.
    pub prompt_tokens: [Counter; 2],
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
    /// Decode: what became of drafts, by the anchor's width.
    pub drafts: Drafts,
    /// Decode: how long drafts were when they were compared with the full KV, in tokens.
    pub draft_tokens: Histogram,
    /// Decode: passes that compared drafts with a finer KV.
    pub redraft_passes: Counter,
    /// Decode: passes that compared drafts with the full KV.
    pub verify_passes: Counter,
    /// Decode: tokens that were told as verified.
    pub verified_tokens: Counter,
    /// Decode: from the transfer's start until the anchor was merged.
    pub time_to_anchor: Histogram,
    /// When this agent's certificate ends, in seconds since the Unix epoch; 0 without one.
    pub certificate_expires_unix_s: Level,
    /// Handshakes that failed for want of trust, or because only one side speaks TLS: on control, and on data.
    pub handshakes_failed: [Tally; 2],
    /// Decode: from the transfer's start until all was merged, of complete transfers.
    pub time_to_full: Histogram,
    /// Decode: what clients wait for.
    pub pace: Paces,
    /// Links, and what they count themselves.
    pub links: Arc<Links>,
    /// Bounded pools of memory.
    pub memory: Pools,
}

/// What clients wait for, as the decode role sees it: from a request's arrival.
#[derive(Debug)]
pub struct Paces {
    /// Until the engine took it.
    pub queue: Histogram,
    /// Until the first token in whatever form, and the first verified one.
    pub first_token: [Histogram; 2],
    /// Until the second, likewise.
    pub second_token: [Histogram; 2],
    /// From one verified token to the next.
    pub inter_token: Histogram,
    /// Until the end, as the endpoint sees it.
    pub duration: Histogram,
    /// How requests ended, in the order of [`Outcome`](crate::metrics::Outcome).
    pub outcomes: [Counter; 5],
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
    /// There was no memory to receive it into.
    Memory,
}

/// How often KV did not come, by reason.
#[derive(Debug, Default)]
pub struct KvFailures([Counter; KvFailure::ALL.len()]);

impl KvFailure {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::NoPeer,
        Self::Peer,
        Self::Link,
        Self::Deadline,
        Self::Content,
        Self::Memory,
    ];

    /// A short name, for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPeer => "no-peer",
            Self::Peer => "peer",
            Self::Link => "link",
            Self::Deadline => "deadline",
            Self::Content => "content",
            Self::Memory => "memory",
        }
    }
}

impl KvFailures {
    /// The count of one reason.
    pub const fn of(&self, failure: KvFailure) -> &Counter {
        &self.0[failure as usize]
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Counters {
    /// All at zero.
    pub fn new() -> Self {
        let counter = Counter::default;
        Self {
            transfers_begun: counter(),
            transfers_complete: counter(),
            transfers_failed: counter(),
            transfers_cancelled: counter(),
            transfer_kv_bytes: counter(),
            anchor_bytes: counter(),
            residual_bytes: counter(),
            prompt_tokens: [counter(), counter()],
            split_ns: counter(),
            requests: counter(),
            requests_finished: counter(),
            requests_failed: counter(),
            requests_aborted: counter(),
            requests_local: counter(),
            transfers_retried: counter(),
            kv_failures: KvFailures::default(),
            drafts: Drafts::default(),
            draft_tokens: Histogram::of(&agent::DRAFT_TOKENS),
            redraft_passes: counter(),
            verify_passes: counter(),
            verified_tokens: counter(),
            time_to_anchor: Histogram::of(&agent::TIME_TO_ANCHOR),
            certificate_expires_unix_s: Level::default(),
            handshakes_failed: Default::default(),
            time_to_full: Histogram::of(&agent::TIME_TO_FULL),
            pace: Paces::new(),
            links: Arc::default(),
            memory: Pools::default(),
        }
    }
}

impl Paces {
    fn new() -> Self {
        let two = |metric| [(); 2].map(|()| Histogram::of(metric));
        Self {
            queue: Histogram::of(&agent::QUEUE_TIME),
            first_token: two(&agent::FIRST_TOKEN),
            second_token: two(&agent::SECOND_TOKEN),
            inter_token: Histogram::of(&agent::INTER_TOKEN),
            duration: Histogram::of(&agent::REQUEST_DURATION),
            outcomes: Default::default(),
        }
    }
}

impl Counter {
    /// Adds a time, in nanoseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
