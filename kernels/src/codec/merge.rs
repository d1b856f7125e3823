//! A unit's head and first steps to its values.

use super::head::{HeadReader, sink_matrix};
use super::{MergeError, Scratch, Segment, Simd, UnitBuffer, place, simd, words};
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
        let params = &mut scratch.params[..size.groups];
        head.params(params)?;
        let present = steps.words(plan, size, &mut scratch.words);
        let place = place(plan, order, tile.head, size);
        let mut matrix = sink_matrix(plan, tile, size, sink);
        simd::merge(level, params, &place, &scratch.words, present, &mut matrix);
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

    /// Gathers the next tile's words; returns how many there are.
    pub(super) fn words(&mut self, plan: &UnitPlan, size: Size, out: &mut [u64]) -> usize {
        for (step, (bytes, at)) in self.steps.iter().zip(&mut self.at).enumerate() {
            let range = plan.step_words(size, step);
            let len = range.len() * size.word_bytes();
            let out = &mut out[range.start * size.runs()..range.end * size.runs()];
            words::unpack(&bytes[*at..][..len], size, out);
            *at += len;
        }
        plan.words_of(size, self.steps.len())
    }
}
