//! A unit's head and first steps to its values.

use super::head::{HeadReader, sink_matrix};
use super::words::{self, Order};
use super::{MergeError, Scratch, Segment, Simd, UnitBuffer, order_of, simd};
use crate::plan::UnitPlan;
use crate::rows::{Size, TileSink};
use crate::{BLOCK_TOKENS, LayerOrder};

pub(super) fn merge(
    level: Simd,
    plan: &UnitPlan,
    order: &LayerOrder,
    unit: &UnitBuffer,
    steps: usize,
    sink: &mut impl TileSink,
) -> Result<(), MergeError> {
    let mut head = HeadReader::new(plan, &unit.head)?;
    let mut steps = StepReader::new(plan, unit, steps)?;
    let widths = Widths::new(plan, order, steps.steps.len());
    let mut scratch = Scratch::new();
    for tile in plan.tiles() {
        let size = plan.size(tile.tokens);
        steps.words(
            plan,
            size,
            order_of(plan, order, tile.head),
            &mut scratch.words,
        );
        let params = &mut scratch.params[..size.groups];
        head.params(params)?;
        let mut matrix = sink_matrix(plan, tile, size, sink);
        simd::merge(
            level,
            params,
            widths.of(tile.head),
            &scratch.words,
            &mut matrix,
        );
        head.escapes(params, &mut matrix)?;
    }
    head.finish(plan, sink)
}

/// How many planes each group has. All tiles of a head have the same, so that they are counted once.
struct Widths {
    groups: usize,
    of_heads: Vec<u8>,
}

impl Widths {
    fn new(plan: &UnitPlan, order: &LayerOrder, steps: usize) -> Self {
        let whole = plan.size(BLOCK_TOKENS);
        let present = plan.words_of(whole, steps);
        let mut of_heads = vec![0; plan.shape().kv_heads * whole.groups];
        for (head, widths) in of_heads.chunks_exact_mut(whole.groups).enumerate() {
            words::widths(order_of(plan, order, head), present, widths);
        }
        Self {
            groups: whole.groups,
            of_heads,
        }
    }

    /// The widths of a head's groups; of a V tile with fewer groups, the first ones.
    fn of(&self, head: usize) -> &[u8] {
        &self.of_heads[head * self.groups..][..self.groups]
    }
}

/// The first steps of a unit, read tile after tile.
pub(super) struct StepReader<'a> {
    steps: &'a [Vec<u8>],
    at: [usize; 8],
}

impl<'a> StepReader<'a> {
    /// The first `steps` steps, all of the planned length.
    pub(super) fn new(
        plan: &UnitPlan,
        unit: &'a UnitBuffer,
        steps: usize,
    ) -> Result<Self, MergeError> {
        let planned = plan.steps();
        if steps == 0 || steps > planned {
            return Err(MergeError::Steps {
                wanted: steps,
                planned,
            });
        }
        for step in 0..steps {
            let expected = plan.step_bytes(step);
            let found = unit.steps.get(step).map_or(0, Vec::len);
            if found != expected {
                return Err(MergeError::Length {
                    segment: Segment::Step(step),
                    expected,
                    found,
                });
            }
        }
        Ok(Self {
            steps: &unit.steps[..steps],
            at: [0; 8],
        })
    }

    /// Gathers the next tile's words; those of missing planes stay as they are.
    pub(super) fn words(
        &mut self,
        plan: &UnitPlan,
        size: Size,
        order: Order<'_>,
        words: &mut [u64],
    ) {
        let words = &mut words[..size.words()];
        for (step, (bytes, at)) in self.steps.iter().zip(&mut self.at).enumerate() {
            let range = plan.step_words(size, step);
            let len = range.len() * size.word_bytes();
            words::unpack(order, range, size, &bytes[*at..][..len], words);
            *at += len;
        }
    }
}
