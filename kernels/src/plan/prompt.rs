//! All units of a transfer, in order.

use core::ops::Range;

use crate::{BLOCK_TOKENS, Cuts, Kind, KvShape, MAX_UNIT_TOKENS, PlanError, RawTokens, UnitPlan};

/// The units of one prompt's transfer: for each token range, for each layer, K then V. This is the order in which prefill
/// makes them, chunk after chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptPlan {
    layers: usize,
    ranges: Vec<[UnitPlan; 2]>,
}

/// One unit of a [`PromptPlan`].
#[derive(Clone, Copy, Debug)]
pub struct UnitRef<'a> {
    /// The layer.
    pub layer: usize,
    /// Keys or values, the token range and all lengths.
    pub plan: &'a UnitPlan,
}

impl PromptPlan {
    /// The units of `tokens` (from the first position that the receiver lacks to the prompt's end), in ranges of
    /// `unit_tokens` aligned to absolute positions.
    ///
    /// # Errors
    /// Where the shape is outside the codec's limits, `tokens` is empty, or `unit_tokens` is not a multiple of 64 up to
    /// [`MAX_UNIT_TOKENS`].
    pub fn new(
        shape: KvShape,
        tokens: Range<u32>,
        unit_tokens: u32,
        raw: RawTokens,
        cuts: Cuts,
    ) -> Result<Self, PlanError> {
        let whole_blocks = (unit_tokens as usize).is_multiple_of(BLOCK_TOKENS);
        if unit_tokens == 0 || !whole_blocks || unit_tokens as usize > MAX_UNIT_TOKENS {
            return Err(PlanError::UnitTokens(unit_tokens));
        }
        if tokens.is_empty() {
            let Range { start, end } = tokens;
            return Err(PlanError::Tokens { start, end });
        }
        let mut ranges = Vec::new();
        let mut start = tokens.start;
        while start < tokens.end {
            let next = (start / unit_tokens + 1).saturating_mul(unit_tokens);
            let range = start..tokens.end.min(next);
            start = range.end;
            let unit = |kind| UnitPlan::new(shape, kind, range.clone(), raw, cuts);
            ranges.push([unit(Kind::K)?, unit(Kind::V)?]);
        }
        Ok(Self {
            layers: shape.layers,
            ranges,
        })
    }

    /// How many units there are.
    pub fn len(&self) -> usize {
        self.ranges.len() * self.layers * 2
    }

    /// Always false: a plan has at least one unit.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Unit `index`; `None` past the end.
    pub fn unit(&self, index: usize) -> Option<UnitRef<'_>> {
        let per_range = self.layers * 2;
        let plan = &self.ranges.get(index / per_range)?[index % 2];
        Some(UnitRef {
            layer: index % per_range / 2,
            plan,
        })
    }

    /// All units, in order.
    pub fn units(&self) -> impl Iterator<Item = UnitRef<'_>> {
        (0..self.len()).filter_map(|index| self.unit(index))
    }

    /// Units of one token range: those of range `r` have the indices from `r * units_per_range()` on.
    pub fn units_per_range(&self) -> usize {
        self.layers * 2
    }

    /// The token ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.ranges.iter().map(|[k, _]| k.tokens())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lynx_units::Width;

    const SHAPE: KvShape = KvShape {
        layers: 3,
        kv_heads: 2,
        head_dim: 64,
    };

    fn cuts() -> Cuts {
        Cuts::new(Width::from_bits(4).unwrap(), 4).unwrap()
    }

    #[test]
    fn a_delta_is_cut_at_absolute_positions() {
        let plan = PromptPlan::new(SHAPE, 100..600, 256, RawTokens::none(), cuts()).unwrap();
        let ranges: Vec<_> = plan.ranges().collect();
        assert_eq!(ranges, [100..256, 256..512, 512..600]);
        assert_eq!(plan.len(), 3 * 3 * 2);
        assert_eq!(plan.units().count(), plan.len());
        let unit = plan.unit(6 + 3).unwrap();
        assert_eq!(
            (unit.layer, unit.plan.kind(), unit.plan.tokens()),
            (1, Kind::V, 256..512)
        );
        assert!(plan.unit(plan.len()).is_none());
    }

    #[test]
    fn impossible_unit_sizes_are_refused() {
        for unit_tokens in [0, 63, 65, 576] {
            let plan = PromptPlan::new(SHAPE, 0..64, unit_tokens, RawTokens::none(), cuts());
            assert_eq!(plan, Err(PlanError::UnitTokens(unit_tokens)));
        }
        assert!(PromptPlan::new(SHAPE, 5..5, 64, RawTokens::none(), cuts()).is_err());
        let near_the_end = u32::MAX - 3..u32::MAX;
        assert!(PromptPlan::new(SHAPE, near_the_end, 64, RawTokens::none(), cuts()).is_ok());
    }
}
