//! What became of work.

use std::fmt;

/// One entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the queue pair on this side.
    pub queue_pair: u32,
    /// What became of the work.
    pub outcome: Outcome,
}

/// What became of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A write has been taken by the peer's device, as have all before it on its queue pair, also those without a completion.
    Written {
        /// The number that the write was given.
        work: u64,
    },
    /// The peer wrote and said so. What it wrote before is in memory.
    Announced {
        /// The immediate.
        immediate: u32,
        /// How many bytes this write had.
        bytes: u32,
    },
    /// A write failed. Its queue pair is in the error state.
    WriteFailed {
        /// The number that the write was given.
        work: u64,
        /// Why.
        failure: Failure,
    },
    /// A receive failed. Its queue pair is in the error state.
    ReceiveFailed {
        /// Why.
        failure: Failure,
    },
}

/// Why work failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The queue pair was in the error state already: something before this failed, or this side ended it.
    Flushed,
    /// The peer's device didn't answer, however often it was asked: it is gone, or its queue pair is, or packets are lost.
    Unanswered,
    /// The peer had no receive for an announcement, for longer than it was given.
    NoReceive,
    /// The peer's device let nothing be written there: the key or the range is wrong, or the memory isn't registered any more.
    RemoteAccess,
    /// This side's memory isn't registered (any more) for what was asked.
    LocalProtection,
    /// Any other, by its number in `ibv_wc_status`.
    Other(u32),
}

impl From<u32> for Failure {
    /// From the number in `ibv_wc_status`.
    fn from(status: u32) -> Self {
        match status {
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            10 => Self::RemoteAccess,
            12 => Self::Unanswered,
            13 => Self::NoReceive,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flushed => f.write_str("the queue pair had failed before"),
            Self::Unanswered => f.write_str("the peer's device doesn't answer"),
            Self::NoReceive => f.write_str("the peer takes no announcements"),
            Self::RemoteAccess => f.write_str("the peer's device refused the address or the key"),
            Self::LocalProtection => f.write_str("this side's memory isn't registered for it"),
            Self::Other(status) => write!(f, "work completion status {status}"),
        }
    }
}
