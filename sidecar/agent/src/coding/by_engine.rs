//! Units that their engine codes by itself: the same segments, made and read there.

use std::ops::Range;

use lynx_kernels::{Blocks, UnitPlan, checksum};

use super::{Coding, DecodeError, Next, Received, Segments, baseline, whole_blocks};
use crate::pool::EngineValues;

impl Coding {
    /// What an engine has made, as it is sent. A plan with fewer steps than the other kind's has empty ones behind its own.
    pub(super) fn segments_by_engine(
        &self,
        mut made: Segments,
        with_tail: bool,
        wanted: Range<usize>,
    ) -> Segments {
        let tail = if with_tail { made.pop() } else { None };
        made.resize_with(self.steps + 1, || (Vec::new().into(), checksum(&[])));
        let all = made.into_iter().chain(tail);
        all.take(wanted.end).skip(wanted.start).collect()
    }

    pub(super) fn decode_by_engine(
        &self,
        values: &EngineValues<'_>,
        plan: &UnitPlan,
        received: &Received,
        next: Next,
    ) -> Result<(), DecodeError> {
        let prompt = self.descriptor.prompt_tokens;
        if let Some(baseline) = baseline(self.method) {
            let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            whole_blocks::decode(baseline, plan, &received.unit.head, &mut blocks)?;
            return Ok(values.write(plan, prompt, &blocks)?);
        }
        let steps = match next {
            Next::Nothing => return Ok(()),
            Next::Exact => None,
            Next::Steps(steps) => Some(steps.min(plan.steps())),
        };
        let sums = received.sums(plan.steps());
        Ok(values.merge(plan, prompt, (&received.unit, &sums), steps)?)
    }
}
