//! Chunks in any order to whole segments and levels.
//!
//! It keeps spans and counts, no bytes. Duplicates are tolerated; a chunk that overlaps another without being its
//! duplicate is refused, because two writers of one byte mean that one of them is wrong. It retries nothing and knows
//! neither frames nor the engine. Completed segments cost one bit, so that a plan of a million segments is small.

mod intervals;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use lynx_units::{Bytes, Priority, SegmentIndex, UnitIndex};

use crate::TransferPlan;
use intervals::{Coverage, Intervals};

/// Most segments of a transfer that are begun and not complete. A sender finishes a segment before it starts the next of
/// its priority, so an honest one needs two.
pub(crate) const MAX_PARTIAL: usize = 256;
/// Most holes in a segment. A stream leaves none.
pub(crate) const MAX_SPANS: usize = 1024;

/// A part of a segment, and what its chunk says about the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) unit: UnitIndex,
    pub(crate) segment: SegmentIndex,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) segment_len: u32,
    pub(crate) checksum: u64,
}

/// Why a part does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    #[error("all of it is here already")]
    Duplicate,
    #[error("the plan has no such unit or segment")]
    NotPlanned,
    #[error("the segment is longer than the plan allows")]
    TooLong,
    #[error("it reaches beyond the segment's end")]
    Beyond,
    #[error("its segment's length or checksum is not what an earlier chunk said")]
    Contradiction,
    #[error("it overlaps another chunk")]
    Overlap,
    #[error("too many segments are begun and not complete, or one has too many holes")]
    Scattered,
}

#[derive(Debug)]
struct Partial {
    unit: UnitIndex,
    segment: SegmentIndex,
    len: u32,
    checksum: u64,
    here: Intervals,
}

/// What a transfer has so far.
#[derive(Debug)]
pub(crate) struct Reassembly {
    plan: Arc<TransferPlan>,
    /// One bit per `[unit][segment]`.
    done: Vec<u64>,
    partial: Vec<Partial>,
    /// Memory of spans that are no longer used, so that a segment does not allocate.
    spare: Vec<Intervals>,
    /// Segments not complete, by level.
    missing: Vec<u32>,
    /// Levels that [`next_level`](Self::next_level) has given.
    given: u8,
}

impl Reassembly {
    pub(crate) fn new(plan: Arc<TransferPlan>) -> Self {
        let mut missing = vec![0; usize::from(plan.levels())];
        for segment in (0u16..).take(plan.segments()).map(SegmentIndex) {
            if let Some(level) = plan.level(segment) {
                missing[usize::from(level)] += plan.units();
            }
        }
        let segments = plan.units() as usize * plan.segments();
        Self {
            plan,
            done: vec![0; segments.div_ceil(64)],
            partial: Vec::new(),
            spare: Vec::new(),
            missing,
            given: 0,
        }
    }

    pub(crate) fn plan(&self) -> &TransferPlan {
        &self.plan
    }

    /// Whether a part may be written; `Ok(true)` where it is the first of its segment. Nothing is here before
    /// [`commit`](Self::commit).
    pub(crate) fn place(&mut self, part: &Part) -> Result<bool, Misfit> {
        let index = self.plan.index(part.unit, part.segment);
        let bound = self.plan.bound(part.unit, part.segment);
        let (Some(index), Some(bound)) = (index, bound) else {
            return Err(Misfit::NotPlanned);
        };
        if part.segment_len > bound {
            return Err(Misfit::TooLong);
        }
        let end = part.offset.checked_add(part.len).ok_or(Misfit::Beyond)?;
        if end > part.segment_len || (part.len == 0) != (part.segment_len == 0) {
            return Err(Misfit::Beyond);
        }
        if self.is_done(index) {
            return Err(Misfit::Duplicate);
        }
        match self.find(part) {
            Some(at) => {
                let partial = &self.partial[at];
                if partial.len != part.segment_len || partial.checksum != part.checksum {
                    return Err(Misfit::Contradiction);
                }
                match partial.here.coverage(part.offset, end) {
                    Coverage::Everything => Err(Misfit::Duplicate),
                    Coverage::Part => Err(Misfit::Overlap),
                    Coverage::Nothing if partial.here.spans() >= MAX_SPANS => {
                        Err(Misfit::Scattered)
                    }
                    Coverage::Nothing => Ok(false),
                }
            }
            None if self.partial.len() >= MAX_PARTIAL => Err(Misfit::Scattered),
            None => {
                let here = self.spare.pop().unwrap_or_default();
                self.partial.push(Partial {
                    unit: part.unit,
                    segment: part.segment,
                    len: part.segment_len,
                    checksum: part.checksum,
                    here,
                });
                Ok(true)
            }
        }
    }

    /// The bytes of a part that [`place`](Self::place) took are here; `true` where they complete its segment.
    pub(crate) fn commit(&mut self, part: &Part) -> bool {
        let Some(at) = self.find(part) else {
            return false;
        };
        let partial = &mut self.partial[at];
        let end = part.offset.saturating_add(part.len);
        let new = partial.here.coverage(part.offset, end) == Coverage::Nothing;
        if part.len > 0 && new {
            partial.here.insert(part.offset, end);
        }
        if partial.here.bytes() < partial.len {
            return false;
        }
        let mut partial = self.partial.swap_remove(at);
        partial.here.clear();
        self.spare.push(partial.here);
        if let Some(index) = self.plan.index(part.unit, part.segment) {
            self.done[index / 64] |= 1 << (index % 64);
        }
        if let Some(level) = self.plan.level(part.segment) {
            self.missing[usize::from(level)] -= 1;
        }
        true
    }

    /// The next level that is complete with all below it; each is given once, in order.
    pub(crate) fn next_level(&mut self) -> Option<u8> {
        let level = self.given;
        if *self.missing.get(usize::from(level))? > 0 {
            return None;
        }
        self.given += 1;
        Some(level)
    }

    /// Whether every level has been given.
    pub(crate) fn is_complete(&self) -> bool {
        usize::from(self.given) == self.missing.len()
    }

    /// Bytes of segments that are not complete, of a priority.
    pub(crate) fn partial_bytes(&self, priority: Priority) -> Bytes {
        self.partial
            .iter()
            .filter(|partial| self.plan.priority(partial.segment) == Some(priority))
            .map(|partial| Bytes::new(u64::from(partial.here.bytes())))
            .sum()
    }

    fn is_done(&self, index: usize) -> bool {
        self.done[index / 64] >> (index % 64) & 1 == 1
    }

    fn find(&self, part: &Part) -> Option<usize> {
        self.partial
            .iter()
            .position(|partial| partial.unit == part.unit && partial.segment == part.segment)
    }
}

#[cfg(test)]
mod tests;
