//! One transfer of a receiver.

use alloc::sync::Arc;

use lynx_units::{Bytes, Priority, Timestamp};

use super::Discard;
use crate::TransferPlan;
use crate::lifecycle::Receiving;
use crate::reassembly::{Misfit, Part, Reassembly};
use crate::wire::ChunkHeader;

/// A transfer that is not over.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) state: Receiving,
    pub(super) deadline: Timestamp,
    /// `None` until it is accepted.
    pub(super) reassembly: Option<Reassembly>,
}

/// Why a chunk has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// Tolerated.
    Duplicate,
    /// The transfer can't go on; why.
    Violation(Wrong),
}

/// How a chunk breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("a chunk came before the offer was accepted")]
    Early,
    #[error("a chunk came on the connection of the other priority")]
    Connection,
    #[error("a chunk does not fit: {0}")]
    Misfit(Misfit),
}

impl From<Misplaced> for Discard {
    fn from(misplaced: Misplaced) -> Self {
        match misplaced {
            Misplaced::Duplicate => Self::Duplicate,
            Misplaced::Violation(_) => Self::Violation,
        }
    }
}

impl Incoming {
    pub(super) const fn new(deadline: Timestamp) -> Self {
        Self {
            state: Receiving::Offered,
            deadline,
            reassembly: None,
        }
    }

    pub(super) fn accept(&mut self, state: Receiving, plan: Arc<TransferPlan>) {
        self.state = state;
        self.reassembly = Some(Reassembly::new(plan));
    }

    /// Finds the place of a chunk; `Ok(true)` where it is the first of its segment.
    pub(super) fn place(&mut self, on: Priority, header: &ChunkHeader) -> Result<bool, Misplaced> {
        let Some(reassembly) = &mut self.reassembly else {
            return Err(Misplaced::Violation(Wrong::Early));
        };
        let planned = reassembly.plan().priority(header.extent.segment);
        if planned.is_some_and(|planned| planned != on) {
            return Err(Misplaced::Violation(Wrong::Connection));
        }
        reassembly
            .place(&part(header))
            .map_err(|misfit| match misfit {
                Misfit::Duplicate => Misplaced::Duplicate,
                other => Misplaced::Violation(Wrong::Misfit(other)),
            })
    }

    /// Bytes that count against a window and that no event has handed to the application.
    pub(super) fn partial_bytes(&self, priority: Priority) -> Bytes {
        self.reassembly
            .as_ref()
            .map_or(Bytes::ZERO, |reassembly| reassembly.partial_bytes(priority))
    }
}

/// What reassembly needs of a chunk's header.
pub(super) const fn part(header: &ChunkHeader) -> Part {
    Part {
        unit: header.extent.unit,
        segment: header.extent.segment,
        offset: header.extent.offset,
        len: header.extent.len,
        segment_len: header.segment_len,
        checksum: header.segment_checksum,
    }
}
