//! One transfer of a sender.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use lynx_units::{Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

use super::{PublishError, Segment};
use crate::TransferPlan;
use crate::lifecycle::Sending;
use crate::scheduler::{Key, Whole};

/// A segment as the scheduler takes it.
pub(super) type Queued = (Priority, Key, Whole);

/// A transfer that is not over.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) state: Sending,
    pub(super) transfer: TransferId,
    pub(super) deadline: Timestamp,
    plan: Arc<TransferPlan>,
    /// One bit per unit.
    published: Vec<u64>,
    /// What was published before the receiver accepted.
    pub(super) held: Vec<Queued>,
    /// Segments that have not been handed out to their last byte.
    pub(super) unsent: usize,
}

impl Outgoing {
    pub(super) fn new(transfer: TransferId, plan: Arc<TransferPlan>, deadline: Timestamp) -> Self {
        let units = plan.units() as usize;
        Self {
            state: Sending::Offered,
            transfer,
            deadline,
            published: vec![0; units.div_ceil(64)],
            held: Vec::new(),
            unsent: units * plan.segments(),
            plan,
        }
    }

    /// Takes a unit; all of it or, on an error, nothing.
    pub(super) fn publish(
        &mut self,
        unit: UnitIndex,
        segments: &[Segment],
    ) -> Result<impl Iterator<Item = Queued>, PublishError> {
        let plan = &self.plan;
        if unit.0 >= plan.units() {
            return Err(PublishError::Unit(unit));
        }
        if segments.len() != plan.segments() {
            return Err(PublishError::Segments {
                given: segments.len(),
                planned: plan.segments(),
            });
        }
        for (number, segment) in numbered(segments) {
            let bound = plan.bound(unit, number).unwrap_or(0);
            if segment.len > bound {
                return Err(PublishError::Bound {
                    len: segment.len,
                    bound,
                });
            }
        }
        let (word, bit) = (unit.0 as usize / 64, 1u64 << (unit.0 % 64));
        if self.published[word] & bit != 0 {
            return Err(PublishError::Twice(unit));
        }
        self.published[word] |= bit;
        Ok(numbered(segments).filter_map(move |(number, segment)| {
            let key = Key {
                deadline: self.deadline,
                transfer: self.transfer,
                level: self.plan.level(number)?,
                unit,
                segment: number,
            };
            let whole = Whole {
                len: segment.len,
                checksum: segment.checksum,
            };
            Some((self.plan.priority(number)?, key, whole))
        }))
    }
}

fn numbered(segments: &[Segment]) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
    (0u16..).map(SegmentIndex).zip(segments)
}
