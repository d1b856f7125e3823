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
    pub(super) offered: Timestamp,
    plan: Arc<TransferPlan>,
    /// How many segments of each unit were published.
    published: Vec<u8>,
    /// What was published before the receiver accepted.
    pub(super) held: Vec<Queued>,
    /// Segments that have not been handed out to their last byte.
    pub(super) unsent: usize,
}

impl Outgoing {
    pub(super) fn new(
        transfer: TransferId,
        plan: Arc<TransferPlan>,
        deadline: Timestamp,
        offered: Timestamp,
    ) -> Self {
        let units = plan.units() as usize;
        Self {
            state: Sending::Offered,
            transfer,
            deadline,
            offered,
            published: vec![0; units],
            held: Vec::new(),
            unsent: units * plan.segments(),
            plan,
        }
    }

    /// Takes a unit's next segments; all of them or, on an error, none.
    pub(super) fn publish(
        &mut self,
        unit: UnitIndex,
        segments: &[Segment],
    ) -> Result<impl Iterator<Item = Queued>, PublishError> {
        let plan = &self.plan;
        let Some(published) = self.published.get_mut(unit.0 as usize) else {
            return Err(PublishError::Unit(unit));
        };
        let first = *published;
        let left = plan.segments() - usize::from(first);
        if left == 0 {
            return Err(PublishError::Twice(unit));
        }
        if segments.is_empty() || segments.len() > left {
            return Err(PublishError::Segments {
                given: segments.len(),
                planned: left,
            });
        }
        for (number, segment) in numbered(first, segments) {
            let bound = plan.bound(unit, number).unwrap_or(0);
            if segment.len > bound {
                return Err(PublishError::Bound {
                    len: segment.len,
                    bound,
                });
            }
        }
        // A unit has far fewer segments than a byte counts.
        *published += u8::try_from(segments.len()).unwrap_or(u8::MAX);
        Ok(
            numbered(first, segments).filter_map(move |(number, segment)| {
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
            }),
        )
    }

    /// How many segments of a unit were published; zero where there is no such unit.
    pub(super) fn published(&self, unit: UnitIndex) -> usize {
        let published = self.published.get(unit.0 as usize);
        published.map_or(0, |count| usize::from(*count))
    }
}

fn numbered(first: u8, segments: &[Segment]) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
    (u16::from(first)..).map(SegmentIndex).zip(segments)
}
