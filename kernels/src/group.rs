//! A group's parameters and the cells that they define: the mathematics of the format, one element at a time.

use crate::bf16;

/// The number of cells.
const CELLS: u32 = 256;
/// `2^-100`, the least step.
pub(crate) const LEAST_STEP: u16 = (127 - 100) << 7;
/// `2^114`; the steps of values below `2^120` lie below it.
const STEP_LIMIT: u16 = (127 + 114) << 7;
/// `2^-16`, the least step relative to a group's largest magnitude. It keeps the bounds of neighbouring cells at least
/// 2^7 units in the last place of f32 apart, so that they are distinct and that an estimate of the code is off by one at most.
pub(crate) const RELATIVE_STEP: f32 = 1.0 / 65536.0;
/// The steps between the minimum and the maximum; the other 16 cells are 8 below and 8 above, so that the 16 cells of
/// four bits lie as those of a 4-bit quantiser that rounds to nearest.
pub(crate) const SPAN: f32 = 240.0;

/// `lo` (BF16) in the lower half, `step` (BF16) in the upper: as on the wire, read as a little-endian u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(pub u32);

impl Params {
    /// The mark of a group whose values travel raw.
    pub(crate) const ESCAPE: Self = Self(0);

    /// The parameters of a group with these values; [`Self::ESCAPE`] for NaN, infinities and magnitudes from 2^120 up.
    pub(crate) fn measure(row: &[u16]) -> Self {
        let ordinals = row.iter().map(|&bits| bf16::ordinal(bits));
        let (low, high) = ordinals.fold((u16::MAX, 0), |(low, high), o| (low.min(o), high.max(o)));
        Self::from_extremes(bf16::from_ordinal(low), bf16::from_ordinal(high))
    }

    /// The parameters of a group whose values lie between these two bit patterns (ordered as ordinals).
    #[inline(always)]
    pub(crate) fn from_extremes(low: u16, high: u16) -> Self {
        if low & 0x7fff >= bf16::HUGE || high & 0x7fff >= bf16::HUGE {
            return Self::ESCAPE;
        }
        let (min, max) = (bf16::value(low), bf16::value(high));
        let magnitude = min.abs().max(max.abs());
        let step = ((max - min) / SPAN)
            .max(magnitude * RELATIVE_STEP)
            .max(bf16::value(LEAST_STEP));
        Self::new(low, bf16::round_up(step))
    }

    /// The two numbers as a pair.
    pub(crate) fn new(lo: u16, step: u16) -> Self {
        Self(u32::from(lo) | (u32::from(step) << 16))
    }

    #[inline(always)]
    pub(crate) fn is_escape(self) -> bool {
        self == Self::ESCAPE
    }

    /// Whether an encoder can have made these: what a decoder must check before it computes with them.
    #[inline(always)]
    pub(crate) fn are_valid(self) -> bool {
        let (lo, step) = self.halves();
        let sane = lo & 0x7fff < bf16::HUGE
            && (LEAST_STEP..STEP_LIMIT).contains(&step)
            && bf16::value(step) >= bf16::value(lo).abs() * RELATIVE_STEP;
        sane || self.is_escape()
    }

    #[inline(always)]
    pub(crate) fn cells(self) -> Cells {
        let (lo, step) = self.halves();
        let (lo, step) = (bf16::value(lo), bf16::value(step));
        Cells {
            base: lo - 8.0 * step,
            step,
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn halves(self) -> (u16, u16) {
        (self.0 as u16, (self.0 >> 16) as u16)
    }
}

/// The 256 cells of a group: cell `c` is `bound(c) <= x < bound(c + 1)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    /// `bound(0)`.
    pub base: f32,
    /// The width of a cell.
    pub step: f32,
}

/// What is left of an element once its cell is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The ordinal of the cell's first BF16 value.
    pub first: u16,
    /// How many BF16 values the cell has.
    pub count: u16,
}

impl Cells {
    /// The lower bound of cell `c` (0 to 256), in f32. The product is exact, so fused and unfused sums agree.
    #[inline(always)]
    pub(crate) fn bound(self, c: u32) -> f32 {
        debug_assert!(c <= CELLS);
        #[expect(clippy::cast_precision_loss, reason = "at most 256")]
        let c = c as f32;
        self.base + c * self.step
    }

    /// The code of `x`: the only cell that holds it. `x` lies in one.
    pub(crate) fn code(self, x: f32) -> u8 {
        let bits = [128u8, 64, 32, 16, 8, 4, 2, 1];
        bits.into_iter().fold(0, |code, bit| {
            let upper = code | bit;
            if self.bound(u32::from(upper)) <= x {
                upper
            } else {
                code
            }
        })
    }

    /// The midpoint of the cells whose codes start with the top `width` bits of `code`, as the nearest BF16.
    pub(crate) fn midpoint(self, code: u8, width: u32) -> u16 {
        // In half steps, so that the midpoint of a single cell is whole too. Nine bits times a BF16 are exact.
        let kept = u32::from(code) >> (8 - width);
        let half_steps = (2 * kept + 1) << (8 - width);
        #[expect(clippy::cast_precision_loss, reason = "at most 512")]
        let half_steps = half_steps as f32;
        bf16::nearest(self.base + half_steps * (self.step * 0.5))
    }

    /// The BF16 values of cell `code`. The count is never negative, as bounds ascend.
    #[inline(always)]
    pub(crate) fn rest(self, code: u8) -> Rest {
        let first = bf16::first_ordinal(self.bound(u32::from(code)));
        let next = bf16::first_ordinal(self.bound(u32::from(code) + 1));
        Rest {
            first,
            count: next.wrapping_sub(first),
        }
    }
}

impl Rest {
    /// `floor(log2(count))`: the bits in section A. The count isn't zero.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        15 - self.count.leading_zeros()
    }

    /// `2^(bits + 1) - count`: the indices below it have no extra bit.
    #[inline(always)]
    pub(crate) fn short(self) -> u16 {
        (0xffff >> self.count.leading_zeros()) - self.count + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16::{from_ordinal, ordinal, value};

    /// Extremes that stress the arithmetic: every exponent, neighbours, zeros, subnormals, opposite signs.
    fn pairs() -> Vec<(u16, u16)> {
        let mut pairs = vec![
            (0, 0),
            (0x8000, 0),
            (0x8000, 0x8000),
            (1, 1),
            (0x8001, 1),
            (0x807f, 0x7f),
        ];
        for exponent in (0..247u16).step_by(3) {
            let x = (exponent << 7) | 0x2b;
            pairs.extend([
                (x, x),
                (x, x + 1),
                (x | 0x8000, x),
                (0x8000, x),
                (x | 0x8000, 0),
                (x | 0x8000, 0x13),
            ]);
            pairs.extend([(x | 0x8000, 0x4111), (0x3f80, x), (x | 0x8000, x / 2)]);
        }
        pairs.push((0xfb7f, 0x7b7f - 0x300));
        pairs
            .into_iter()
            .map(|(a, b)| {
                if ordinal(a) <= ordinal(b) {
                    (a, b)
                } else {
                    (b, a)
                }
            })
            .collect()
    }

    #[test]
    fn the_cells_partition_the_values_between_the_extremes() {
        for (low, high) in pairs() {
            let params = Params::from_extremes(low, high);
            assert!(
                params.are_valid() && !params.is_escape(),
                "{low:x} {high:x}"
            );
            let cells = params.cells();
            assert!((0..256).all(|c| cells.bound(c) < cells.bound(c + 1)));
            assert!(cells.bound(1) <= value(low) && value(high) < cells.bound(256));
            let around = (ordinal(low)..=ordinal(high))
                .step_by(7)
                .chain([ordinal(high)]);
            for o in around {
                let x = value(from_ordinal(o));
                let code = cells.code(x);
                assert!(cells.bound(u32::from(code)) <= x && x < cells.bound(u32::from(code) + 1));
                let rest = cells.rest(code);
                assert!(
                    rest.count > 0 && o.wrapping_sub(rest.first) < rest.count,
                    "{x} {rest:?}"
                );
                assert_eq!(
                    (2u32 << rest.bits()) - u32::from(rest.count),
                    u32::from(rest.short())
                );
            }
        }
    }

    #[test]
    fn a_midpoint_lies_in_its_cell_up_to_rounding() {
        for (low, high) in pairs() {
            let cells = Params::from_extremes(low, high).cells();
            for width in 1..=8 {
                for code in [0u8, 7, 8, 100, 247, 255] {
                    let kept = u32::from(code) >> (8 - width);
                    let (start, end) = (
                        cells.bound(kept << (8 - width)),
                        cells.bound((kept + 1) << (8 - width)),
                    );
                    let x = value(cells.midpoint(code, width));
                    let ulp = start.abs().max(end.abs()) / 128.0 + f32::MIN_POSITIVE;
                    assert!(
                        start - ulp <= x && x <= end + ulp,
                        "{low:x} {high:x} {width} {code}"
                    );
                }
            }
        }
    }

    #[test]
    fn parameters_that_no_encoder_makes_are_invalid() {
        let one = 0x3f80;
        for (lo, step) in [
            (0x7f80, one),
            (0x7fc0, one),
            (0x7b80, one),
            (0, 0x8000),
            (one, 0),
            (0, 0xbf80),
            (0, LEAST_STEP - 1),
            (0, STEP_LIMIT),
            (one, 0x3700),
            (0, 0x7fc0),
        ] {
            assert!(!Params::new(lo, step).are_valid(), "{lo:x} {step:x}");
        }
        assert!(Params::ESCAPE.are_valid());
        assert!(Params::new(one, 0x3780).are_valid());
        assert_eq!(Params::measure(&[one, 0x7fc0]), Params::ESCAPE);
        assert_eq!(Params::measure(&[one, 0xff80]), Params::ESCAPE);
        assert_eq!(Params::measure(&[0xfb80, one]), Params::ESCAPE);
    }
}
