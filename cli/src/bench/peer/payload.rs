//! What is sent: bytes that differ everywhere, cut as a transfer's units are.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use lynx_protocol::TransferPlan;
use lynx_transport::{SegmentPayload, SharedBytes};
use lynx_units::{Priority, SegmentIndex, UnitIndex};

/// A residual's unit: about a layer of a model of some billion parameters.
const BULK_UNIT: u32 = 1 << 20;
/// An anchor's unit: a quarter of its residual.
const ANCHOR_UNIT: u32 = 256 << 10;

/// What kind of transfer it is, and its length. Both ends derive the plan from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) priority: Priority,
    pub(super) bytes: u32,
}

impl Shape {
    /// As the descriptor of a transfer.
    pub(super) fn descriptor(self) -> Vec<u8> {
        let mut descriptor = vec![u8::from(self.priority == Priority::Residual)];
        descriptor.extend(self.bytes.to_le_bytes());
        descriptor
    }

    pub(super) fn of_descriptor(descriptor: &[u8]) -> Result<Self> {
        let (&kind, bytes) = descriptor.split_first().context("an empty descriptor")?;
        let bytes = bytes.try_into().context("a descriptor of odd length")?;
        let priority = if kind == 0 {
            Priority::Anchor
        } else {
            Priority::Residual
        };
        let bytes = u32::from_le_bytes(bytes);
        Ok(Self { priority, bytes })
    }

    pub(super) const fn unit(self) -> u32 {
        match self.priority {
            Priority::Anchor => ANCHOR_UNIT,
            Priority::Residual => BULK_UNIT,
        }
    }

    /// The segment of each unit that has the bytes: a residual has an empty anchor before it.
    const fn full(self) -> u16 {
        match self.priority {
            Priority::Anchor => 0,
            Priority::Residual => 1,
        }
    }

    /// Where in the payload a unit lies.
    pub(super) fn range(self, unit: UnitIndex) -> std::ops::Range<usize> {
        let start = u64::from(unit.0) * u64::from(self.unit());
        let end = (start + u64::from(self.unit())).min(u64::from(self.bytes));
        // Both are at most a u32 that `bytes` is.
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        index(start.min(end))..index(end)
    }

    pub(super) fn plan(self) -> Result<Arc<TransferPlan>> {
        let levels = [0, 1];
        let levels = levels.get(..=usize::from(self.full())).unwrap_or(&levels);
        let units = self.bytes.div_ceil(self.unit());
        let plan = TransferPlan::new(units, levels, |_, segment: SegmentIndex| {
            if segment.0 == self.full() {
                self.unit()
            } else {
                0
            }
        })?;
        Ok(Arc::new(plan))
    }

    /// The segments of one unit of `payload`.
    pub(super) fn segments(self, payload: &SharedBytes, unit: UnitIndex) -> Vec<SegmentPayload> {
        let checksum = 0;
        let full = SegmentPayload {
            bytes: payload.slice(self.range(unit)),
            checksum,
        };
        let empty = SegmentPayload {
            bytes: SharedBytes::new(),
            checksum,
        };
        match self.priority {
            Priority::Anchor => vec![full],
            Priority::Residual => vec![empty, full],
        }
    }
}

/// Bytes that no two places of have alike, and no two seeds.
pub(super) fn noise(length: usize, seed: u64) -> SharedBytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // An xorshift: fast, and different everywhere is all that is asked of it.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    SharedBytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_the_same_shape_and_every_byte_is_in_one_unit() {
        for (priority, bytes) in [(Priority::Anchor, 300_000), (Priority::Residual, 3 << 20)] {
            let shape = Shape { priority, bytes };
            assert_eq!(Shape::of_descriptor(&shape.descriptor()).unwrap(), shape);
            let units = shape.plan().unwrap().units();
            let lengths = (0..units).map(|unit| shape.range(UnitIndex(unit)).len());
            assert_eq!(lengths.sum::<usize>(), bytes as usize);
        }
    }

    #[test]
    fn noise_differs_by_seed() {
        assert_eq!(noise(1001, 7), noise(1001, 7));
        assert_ne!(noise(1001, 7), noise(1001, 8));
    }
}
