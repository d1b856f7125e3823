//! What a model counts.

/// What has been asked of the cards of a [`Fabric`](super::Fabric).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounts {
    /// Bytes that were written.
    pub bytes: u64,
    /// Writes, with immediate or without.
    pub requests: u64,
    /// Those of more than a kibibyte: chunks.
    pub long: u64,
    /// Completions that senders were told of.
    pub signalled: u64,
    /// Writes with immediate that found no receive.
    pub not_ready: u64,
    /// The most that any queue pair had under way at a time.
    pub most_under_way: usize,
    /// Likewise, in bytes.
    pub most_bytes_under_way: u64,
    /// Of the bytes, those that were read where a side has lent them.
    pub lent: u64,
    /// Cards that connections have lost and said so, each end of one for itself.
    pub lost: u64,
}
