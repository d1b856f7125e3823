//! A unit's segments as they arrive, and what of them is in the engine's blocks.

use lynx_kernels::UnitBuffer;

/// What a unit's received segments allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing that is not in the engine's blocks already.
    Nothing,
    /// An approximation from so many steps.
    Steps(usize),
    /// The exact values.
    Exact,
}

/// What of a unit is in the engine's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Merged {
    Nothing,
    Steps(usize),
    Exact,
}

/// One unit's segments, as they arrive. Made by [`Coding::receive`](super::Coding::receive).
#[derive(Debug)]
pub struct Received {
    pub(super) unit: UnitBuffer,
    /// The checksum that came with each segment, where it is here.
    pub(super) here: Vec<Option<u64>>,
    merged: Merged,
}

/// A segment that a unit doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a unit has no segment {0}")]
pub struct NoSuchSegment(pub usize);

impl Received {
    /// Nothing yet, of a unit with so many steps and so many segments in all.
    pub(super) fn new(steps: usize, segments: usize) -> Self {
        Self {
            unit: UnitBuffer {
                head: Vec::new(),
                steps: vec![Vec::new(); steps],
                tail: Vec::new(),
            },
            here: vec![None; segments],
            merged: Merged::Nothing,
        }
    }

    /// Takes segment `index`, which has this checksum; its bytes are moved, not copied.
    ///
    /// # Errors
    /// Where the unit has no such segment.
    pub fn take(
        &mut self,
        index: usize,
        bytes: Vec<u8>,
        checksum: u64,
    ) -> Result<(), NoSuchSegment> {
        let here = self.here.get_mut(index).ok_or(NoSuchSegment(index))?;
        *here = Some(checksum);
        match index.checked_sub(1) {
            None => self.unit.head = bytes,
            Some(step) if step < self.unit.steps.len() => self.unit.steps[step] = bytes,
            Some(_) => self.unit.tail = bytes,
        }
        Ok(())
    }

    /// The checksums of the head, so many steps and the tail.
    pub(super) fn sums(&self, steps: usize) -> Vec<u64> {
        let sum = |index: usize| self.here.get(index).copied().flatten().unwrap_or_default();
        let tail = self.unit.steps.len() + 1;
        (0..=steps).chain([tail]).map(sum).collect()
    }

    /// What can be merged that is not merged yet.
    pub fn merge_next(&self) -> Next {
        let segments = self.here.iter().take_while(|here| here.is_some()).count();
        let steps = segments.saturating_sub(1).min(self.unit.steps.len());
        let tail = self.here.len() > self.unit.steps.len() + 1 && segments == self.here.len();
        let baseline = self.here.len() == 1 && segments == 1;
        if (tail || baseline) && self.merged < Merged::Exact {
            Next::Exact
        } else if steps > 0 && self.merged < Merged::Steps(steps) && !tail {
            Next::Steps(steps)
        } else {
            Next::Nothing
        }
    }

    /// Notes that what [`merge_next`](Self::merge_next) told is in the blocks, and frees what no later merge reads.
    pub fn merged(&mut self) {
        match self.merge_next() {
            Next::Nothing => {}
            Next::Steps(steps) => self.merged = Merged::Steps(steps),
            Next::Exact => {
                self.merged = Merged::Exact;
                self.unit = UnitBuffer {
                    head: Vec::new(),
                    steps: vec![Vec::new(); self.unit.steps.len()],
                    tail: Vec::new(),
                };
            }
        }
    }
}
