//! The shape of a transfer, known to both sides before a byte is sent.

use alloc::vec::Vec;

use lynx_units::{Bytes, Priority, SegmentIndex, UnitIndex};

use crate::limits::{MAX_SEGMENT, MAX_SEGMENTS, MAX_TRANSFER_SEGMENTS, MAX_UNITS};

/// What a transfer is made of: `units` units, each with the same list of segments; the level of every segment; and how
/// long each segment of each unit can be at most, so that credit and buffers are known before the bytes are.
///
/// Level 0 is the anchor, [`Priority::Anchor`]; levels 1, 2, ... are [`Priority::Residual`], in the order in which they
/// follow. Both sides derive the same plan from the descriptor that an Open carries; the protocol never looks inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferPlan {
    units: u32,
    levels: Vec<u8>,
    /// `[unit][segment]`, bytes.
    bounds: Vec<u32>,
}

/// Why a list of levels and bounds is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too many or no units.
    #[error(
        "a transfer has {0} units, and may have 1 to {MAX_UNITS}: split it into several transfers"
    )]
    Units(u32),
    /// Too many or no segments.
    #[error(
        "a unit has {0} segments, and may have 1 to {MAX_SEGMENTS}: merge segments of one level"
    )]
    Segments(usize),
    /// Units times segments is too much.
    #[error(
        "a transfer has {0} segments in all, and may have {MAX_TRANSFER_SEGMENTS}: split it into several transfers"
    )]
    Total(usize),
    /// A level is missing below the highest one.
    #[error(
        "no segment has level {0}, but a higher level exists: number the levels without a gap, from 0"
    )]
    Gap(u8),
    /// A bound is larger than the protocol allows.
    #[error(
        "segment {segment} of unit {unit} may have {bound} bytes, and the limit is {MAX_SEGMENT}: make units smaller"
    )]
    Bound {
        /// The unit.
        unit: UnitIndex,
        /// The segment.
        segment: SegmentIndex,
        /// Its bound, in bytes.
        bound: u32,
    },
}

impl TransferPlan {
    /// A plan of `units` units whose segments have these `levels`; `bound(unit, segment)` is the most bytes a segment has.
    pub fn new(
        units: u32,
        levels: &[u8],
        mut bound: impl FnMut(UnitIndex, SegmentIndex) -> u32,
    ) -> Result<Self, PlanError> {
        if units == 0 || units > MAX_UNITS {
            return Err(PlanError::Units(units));
        }
        if levels.is_empty() || levels.len() > MAX_SEGMENTS {
            return Err(PlanError::Segments(levels.len()));
        }
        let total = (units as usize).saturating_mul(levels.len());
        if total > MAX_TRANSFER_SEGMENTS {
            return Err(PlanError::Total(total));
        }
        let top = levels.iter().copied().max().unwrap_or(0);
        if let Some(gap) = (0..top).find(|level| !levels.contains(level)) {
            return Err(PlanError::Gap(gap));
        }
        let mut bounds = Vec::with_capacity(total);
        for unit in (0..units).map(UnitIndex) {
            for segment in (0u16..).take(levels.len()).map(SegmentIndex) {
                let bound = bound(unit, segment);
                if bound > MAX_SEGMENT {
                    return Err(PlanError::Bound {
                        unit,
                        segment,
                        bound,
                    });
                }
                bounds.push(bound);
            }
        }
        Ok(Self {
            units,
            levels: levels.to_vec(),
            bounds,
        })
    }

    /// Number of units.
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// Number of segments of every unit.
    pub const fn segments(&self) -> usize {
        self.levels.len()
    }

    /// One more than the highest level.
    pub fn levels(&self) -> u8 {
        self.levels.iter().copied().max().map_or(0, |top| top + 1)
    }

    /// The level of a segment; `None` where there is no such segment.
    pub fn level(&self, segment: SegmentIndex) -> Option<u8> {
        self.levels.get(usize::from(segment.0)).copied()
    }

    /// The priority of a segment; `None` where there is no such segment.
    pub fn priority(&self, segment: SegmentIndex) -> Option<Priority> {
        self.level(segment).map(priority_of_level)
    }

    /// The most bytes a segment may have; `None` where there is no such unit or segment.
    pub fn bound(&self, unit: UnitIndex, segment: SegmentIndex) -> Option<u32> {
        self.index(unit, segment)
            .and_then(|index| self.bounds.get(index).copied())
    }

    /// The largest bound of all segments of a priority; zero where it has none.
    pub fn largest(&self, priority: Priority) -> Bytes {
        let mut largest = 0;
        for row in self.bounds.chunks(self.levels.len()) {
            for (&bound, &level) in row.iter().zip(&self.levels) {
                if priority_of_level(level) == priority {
                    largest = largest.max(bound);
                }
            }
        }
        Bytes::new(u64::from(largest))
    }

    /// The place of a segment in a table `[unit][segment]`; `None` where there is no such unit or segment.
    pub(crate) fn index(&self, unit: UnitIndex, segment: SegmentIndex) -> Option<usize> {
        let segment = usize::from(segment.0);
        let exists = unit.0 < self.units && segment < self.levels.len();
        exists.then(|| unit.0 as usize * self.levels.len() + segment)
    }
}

/// Level 0 is the anchor, everything else the residual.
fn priority_of_level(level: u8) -> Priority {
    match level {
        0 => Priority::Anchor,
        _ => Priority::Residual,
    }
}
