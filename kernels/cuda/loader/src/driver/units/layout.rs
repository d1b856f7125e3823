//! Where a unit's memory is in the arena, and the lengths that its segments must have.

use lynx_gpu::{Extent, Launch, Status, Unit};
use lynx_kernels::{Kind, UnitBuffer, UnitPlan};

use super::CodeError;

/// A unit's memory in the arena: offsets in bytes. What units are told comes first, then their segments.
#[derive(Default)]
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
}

/// The arena's bytes from its beginning on.
pub(super) struct Arena {
    pub(super) end: usize,
}

impl Arena {
    /// With the structures of so many units, which are where recorded launches look for them.
    pub(super) fn of_units(count: usize) -> Self {
        let end = count * UNIT_BYTES;
        Self { end }
    }

    fn take(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end = (at + bytes).next_multiple_of(ALIGNMENT);
        at
    }
}

const ALIGNMENT: usize = 256;
const UNIT_BYTES: usize = size_of::<Unit>().next_multiple_of(ALIGNMENT);

impl Layout {
    /// What the unit of this number is told, with a table of so many pages.
    pub(super) fn new(
        arena: &mut Arena,
        number: usize,
        (plan, launch): (&UnitPlan, &Launch),
        pages: usize,
    ) -> Self {
        let entries = plan.shape().kv_heads * plan.shape().head_dim;
        Self {
            unit: number * UNIT_BYTES,
            table: arena.take(pages * 4),
            places: arena.take(entries * 8 * 2),
            cuts: arena.take(entries * 2),
            owners: arena.take(launch.owners().len()),
            status: arena.take(size_of::<Status>()),
            published: arena.take((plan.tiles().count() + 1) * 4),
            ..Self::default()
        }
    }

    /// Its segments.
    pub(super) fn with_segments(self, arena: &mut Arena, plan: &UnitPlan) -> Self {
        let steps = 0..plan.steps();
        Self {
            head: arena.take(plan.head_bound()),
            steps: steps
                .map(|step| arena.take(plan.step_bytes(step)))
                .collect(),
            tail: arena.take(plan.segment_bound(plan.segments() - 1)),
            ..self
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
