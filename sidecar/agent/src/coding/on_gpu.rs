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
        let lent = match GpuUnit::split_all_lent(&parts, with_tail) {
            Err(CodeError::Staging(_)) => return Ok(None),
            lent => lent?,
        };
        if let Some(lent) = lent {
            let each = lent.into_iter().zip(&parts);
            let all = each.map(|(mut pieces, part)| {
                // Without a tail there is an empty one, as with every other coder.
                pieces.resize_with(part.plan.segments(), nothing);
                self.arranged(pieces, wanted.clone())
            });
            return Ok(Some(all.collect()));
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

    /// What a GPU has made, as it is sent.
    pub(super) fn segments_of(&self, made: Made, wanted: Range<usize>) -> Segments {
        let Made { unit, sums } = made;
        let segments = std::iter::once(unit.head).chain(unit.steps);
        let segments = segments.chain([unit.tail]).map(Piece::from);
        self.arranged(segments.zip(sums).collect(), wanted)
    }

    /// A head, steps and a tail as they are sent: a plan with fewer steps than the other kind's has empty ones behind its own.
    fn arranged(&self, mut pieces: Segments, wanted: Range<usize>) -> Segments {
        let tail = pieces.pop();
        pieces.resize_with(self.steps + 1, nothing);
        pieces.extend(tail);
        pieces.truncate(wanted.end);
        pieces.split_off(wanted.start.min(pieces.len()))
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

/// An empty segment.
fn nothing() -> (Piece, u64) {
    (Piece::from(Vec::new()), lynx_kernels::checksum(&[]))
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
