//! Where a unit's memory is in the arena, and the lengths that its segments must have.

use lynx_gpu::{Extent, Launch, Status, Unit};
use lynx_kernels::{Kind, UnitBuffer, UnitPlan};

use super::CodeError;

/// A unit's memory in the arena: offsets in bytes.
pub(super) struct Layout {
    pub(super) unit: usize,
    pub(super) table: usize,
    pub(super) places: usize,
    pub(super) cuts: usize,
    pub(super) owners: usize,
    pub(super) status: usize,
    pub(super) published: usize,
    pub(super) head: usize,
    pub(super) steps: Vec<usize>,
    pub(super) tail: usize,
    pub(super) end: usize,
}

impl Layout {
    pub(super) fn new(plan: &UnitPlan, launch: &Launch, pages: usize) -> Self {
        let mut end = 0usize;
        let mut take = |bytes: usize| {
            let at = end;
            end = (end + bytes).next_multiple_of(256);
            at
        };
        let entries = plan.shape().kv_heads * plan.shape().head_dim;
        Self {
            unit: take(size_of::<Unit>()),
            table: take(pages * 4),
            places: take(entries * 8 * 2),
            cuts: take(entries * 2),
            owners: take(launch.owners().len()),
            status: take(size_of::<Status>()),
            published: take((plan.tiles().count() + 1) * 4),
            head: take(plan.head_bound()),
            steps: (0..plan.steps())
                .map(|step| take(plan.step_bytes(step)))
                .collect(),
            tail: take(plan.segment_bound(plan.segments() - 1)),
            end,
        }
    }
}

/// A segment's number for the kernels.
pub(super) fn number(plan: &UnitPlan, index: usize) -> usize {
    if index == plan.segments() - 1 {
        Extent::TAIL as usize
    } else {
        index
    }
}

pub(super) fn check_lengths(
    plan: &UnitPlan,
    unit: &UnitBuffer,
    steps: usize,
) -> Result<(), CodeError> {
    if unit.head.len() < plan.head_bytes() || unit.head.len() != head_len(plan, &unit.head) {
        return Err(CodeError::Length("the head"));
    }
    let mut lengths = unit.steps.iter().enumerate().take(steps);
    let fit = lengths.all(|(step, bytes)| bytes.len() == plan.step_bytes(step));
    if unit.steps.len() < steps || unit.steps.len() > plan.steps() || !fit {
        return Err(CodeError::Length("a step"));
    }
    Ok(())
}

/// The length of the head that begins so: each escaped group adds its values. It has at least the plan's bytes.
pub(super) fn head_len(plan: &UnitPlan, head: &[u8]) -> usize {
    let channels = plan.shape().head_dim;
    let mut params = head.as_chunks::<4>().0.iter();
    let mut len = plan.head_bytes();
    for tile in plan.tiles() {
        let (groups, lanes) = match plan.kind() {
            Kind::K => (channels, tile.tokens),
            Kind::V => (tile.tokens, channels),
        };
        let escaped = params.by_ref().take(groups).filter(|it| **it == [0; 4]);
        len += escaped.count() * lanes * 2;
    }
    len
}

pub(super) fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_ne_bytes()).collect()
}

pub(super) fn halves(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_ne_bytes()).collect()
}
