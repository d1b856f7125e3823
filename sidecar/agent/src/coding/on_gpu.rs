//! Units whose blocks are in a GPU's memory: the same segments, made and read there.

use std::ops::Range;

use lynx_cuda::{CodeError, Segments as Made};
use lynx_kernels::{Blocks, LayerOrder, Profile, UnitPlan};

use super::{Coding, DecodeError, EncodeError, Next, Received, Segments, baseline, whole_blocks};
use crate::pool::{GpuUnit, GpuValues, Piece, Readable, Values};

impl Coding {
    /// As [`Self::encode_part`], of a layer's K and V: in one launch where a GPU codes them. `None` where none does, or where both
    /// together exceed its pinned memory: then each is to be coded alone.
    ///
    /// # Errors
    /// As there.
    pub fn encode_together(
        &self,
        profile: &Profile,
        units: Range<usize>,
        blocks: &Readable,
        wanted: Range<usize>,
    ) -> Result<Option<Vec<Segments>>, EncodeError> {
        if baseline(self.method).is_some() {
            return Ok(None);
        }
        let with_tail = self.has_tail() && wanted.end == self.transfer.segments();
        let mut parts = Vec::with_capacity(units.len());
        for unit in units {
            let unit = self.unit(unit, blocks.shape())?;
            let (plan, order) = (unit.plan, profile.layer(unit.layer));
            match blocks.values(unit.layer, plan.kind(), plan.tokens())? {
                Values::Gpu(values) => parts.push(GpuUnit {
                    plan,
                    order,
                    values,
                }),
                Values::Host(_) | Values::Engine(_) => return Ok(None),
            }
        }
        let made = match GpuUnit::split_all(&parts, with_tail) {
            Err(CodeError::Staging(_)) => return Ok(None),
            made => made?,
        };
        let each = made.into_iter();
        Ok(Some(
            each.map(|made| self.segments_of(made, wanted.clone()))
                .collect(),
        ))
    }

    /// What a GPU has made, as it is sent. A plan with fewer steps than the other kind's has empty ones behind its own.
    pub(super) fn segments_of(&self, made: Made, wanted: Range<usize>) -> Segments {
        let Made { unit, mut sums } = made;
        let tail_sum = sums.pop().unwrap_or_default();
        let empty = lynx_kernels::checksum(&[]);
        sums.resize(self.steps + 1, empty);
        sums.push(tail_sum);
        let mut steps = unit.steps;
        steps.resize(self.steps, Vec::new());
        let segments = std::iter::once(unit.head).chain(steps).chain([unit.tail]);
        segments
            .map(Piece::from)
            .zip(sums)
            .take(wanted.end)
            .skip(wanted.start)
            .collect()
    }

    pub(super) fn decode_on_gpu(
        &self,
        mut values: GpuValues<'_>,
        (plan, order): (&UnitPlan, &LayerOrder),
        received: &mut Received,
        next: Next,
    ) -> Result<(), DecodeError> {
        if let Some(baseline) = baseline(self.method) {
            let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            whole_blocks::decode(baseline, plan, &received.unit.head, &mut blocks)?;
            return Ok(values.write(plan, &blocks)?);
        }
        received.as_made(plan.steps(), |segments| match next {
            Next::Nothing => Ok(()),
            Next::Exact => values.restore(plan, order, segments),
            Next::Steps(steps) => values.merge(plan, order, segments, steps.min(plan.steps())),
        })?;
        Ok(())
    }
}

impl Received {
    /// The segments as a plan of so many steps has them, which are those of a coder.
    fn as_made<T>(&mut self, steps: usize, code: impl FnOnce(&Made) -> T) -> T {
        let sums = self.sums(steps);
        let mut unit = std::mem::take(&mut self.unit);
        let all = unit.steps.len();
        unit.steps.truncate(steps);
        let made = Made { unit, sums };
        let done = code(&made);
        self.unit = made.unit;
        self.unit.steps.resize(all, Vec::new());
        done
    }
}
