//! A unit's head and first steps to its values.

use super::head::{HeadReader, sink_matrix};
use super::words::{self, Order};
use super::{MergeError, Scratch, Segment, Simd, UnitBuffer, order_of, simd};
use crate::LayerOrder;
use crate::plan::UnitPlan;
use crate::rows::{Size, TileSink};

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
    let mut scratch = Scratch::new();
    for tile in plan.tiles() {
        let size = plan.size(tile.tokens);
        steps.words(plan, size, order_of(plan, order, tile.head), &mut scratch);
        let params = &mut scratch.params[..size.groups];
        head.params(params)?;
        let mut matrix = sink_matrix(plan, tile, size, sink);
        simd::merge(level, params, &scratch.widths, &scratch.words, &mut matrix);
        head.escapes(params, &mut matrix)?;
    }
    head.finish(plan, sink)
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

    /// Gathers the next tile's words and widths; the words of missing planes become zero.
    pub(super) fn words(
        &mut self,
        plan: &UnitPlan,
        size: Size,
        order: Order<'_>,
        out: &mut Scratch,
    ) {
        let (words, widths) = (
            &mut out.words[..size.words()],
            &mut out.widths[..size.groups],
        );
        if self.steps.len() < plan.steps() {
            words.fill(0);
        }
        for (step, (bytes, at)) in self.steps.iter().zip(&mut self.at).enumerate() {
            let range = plan.step_words(size, step);
            let len = range.len() * size.word_bytes();
            words::unpack(order, range, size, &bytes[*at..][..len], (words, widths));
            *at += len;
        }
    }
}
