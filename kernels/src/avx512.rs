//! The kernels with AVX-512: 64 lanes at a time.
//!
//! A row's 64 lanes are two vectors of BF16; as f32 they are four vectors, two of the even and two of the odd lanes, since an even lane
//! is a shift away from being an f32 and an odd lane a mask. Bits go to planes and back by a matrix of GFNI, which every
//! CPU with VBMI has.
#![expect(unsafe_code, reason = "loads and stores of whole vectors")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "halves of masks, bytes of numbers that fit"
)]

mod lanes;
mod lookup;
mod merge;
mod tail;

use core::arch::x86_64::*;

use crate::bf16;
use crate::group::{Cells, LEAST_STEP, Params, RELATIVE_STEP, SPAN};
use crate::rows::Matrix;
use lanes::Lanes;
pub(crate) use merge::merge;
pub(crate) use tail::{decode_tail, encode_tail};

/// The numbers of up to 256 groups, so that they are computed 16 groups at a time.
struct Groups {
    base: [f32; 256],
    step: [f32; 256],
    /// `1 / step`.
    inverse: [f32; 256],
    /// Minus the first bound in steps, and less a little: see [`Group::codes`].
    offset: [f32; 256],
}

/// One group's [`crate::group::Cells`] in every lane.
#[derive(Clone, Copy)]
struct Bounds {
    base: __m512,
    step: __m512,
}

/// What it takes to code one group's values, in every lane.
#[derive(Clone, Copy)]
struct Group {
    bounds: Bounds,
    inverse: __m512,
    offset: __m512,
}

/// As [`crate::scalar::split`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn split(tile: &Matrix<'_>, params: &mut [Params], words: &mut [u64]) {
    let size = tile.size();
    let params = &mut params[..size.groups];
    let groups = Groups::measure(tile, params);
    // Where the next tile's rows lie if it follows in memory, as in most engines; elsewhere this is in vain.
    let ahead = tile.span();
    let rows = words[..size.words()].chunks_exact_mut(size.runs() * 8);
    for ((index, words), params) in rows.enumerate().zip(params) {
        if params.is_escape() {
            words.fill(0);
            continue;
        }
        let group = groups.get(index);
        for (run, words) in tile.row(index).chunks(64).zip(words.as_chunks_mut::<8>().0) {
            lanes::prefetch(run.as_ptr().wrapping_add(ahead));
            let lanes = Lanes::load(run);
            let codes = lanes.quarters().map(|x| group.codes(x).0);
            lanes::store_planes(&codes, run.len(), words);
        }
    }
}

impl Groups {
    /// Measures every group of a tile.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn measure(tile: &Matrix<'_>, params: &mut [Params]) -> Self {
        let (mut lows, mut highs) = ([0u16; 256], [0u16; 256]);
        for (group, (low, high)) in lows
            .iter_mut()
            .zip(&mut highs)
            .enumerate()
            .take(params.len())
        {
            let row = tile.row(group);
            let mut extremes = Lanes::load(row).ordinals().extremes();
            for run in row.chunks(64).skip(1) {
                extremes = extremes.join(Lanes::load(run).ordinals().extremes());
            }
            (*low, *high) = extremes.reduce();
        }
        let mut groups = Self {
            base: [0.0; 256],
            step: [0.0; 256],
            inverse: [0.0; 256],
            offset: [0.0; 256],
        };
        let extremes = lows
            .as_chunks::<16>()
            .0
            .iter()
            .zip(highs.as_chunks::<16>().0);
        for (i, (params, (low, high))) in params.chunks_mut(16).zip(extremes).enumerate() {
            groups.compute(i * 16, low, high, params);
        }
        groups
    }

    /// Computes sixteen groups, as [`Params::from_extremes`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn compute(&mut self, at: usize, low: &[u16; 16], high: &[u16; 16], params: &mut [Params]) {
        let (low, high) = (lanes::load_patterns(low), lanes::load_patterns(high));
        let huge = _mm512_set1_epi32(i32::from(bf16::HUGE));
        let magnitude = _mm512_set1_epi32(0x7fff);
        let escaped = _mm512_cmpge_epu32_mask(_mm512_and_si512(low, magnitude), huge)
            | _mm512_cmpge_epu32_mask(_mm512_and_si512(high, magnitude), huge);
        let min = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(low));
        let max = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(high));
        let magnitude = _mm512_max_ps(_mm512_abs_ps(min), _mm512_abs_ps(max));
        let step = _mm512_div_ps(_mm512_sub_ps(max, min), _mm512_set1_ps(SPAN));
        let step = _mm512_max_ps(
            step,
            _mm512_mul_ps(magnitude, _mm512_set1_ps(RELATIVE_STEP)),
        );
        let step = _mm512_max_ps(step, _mm512_set1_ps(bf16::value(LEAST_STEP)));
        let above = _mm512_set1_epi32(0xffff);
        let step = _mm512_srli_epi32::<16>(_mm512_add_epi32(_mm512_castps_si512(step), above));
        let step = _mm512_slli_epi32::<16>(step);
        let packed = _mm512_maskz_mov_epi32(!escaped, _mm512_or_si512(step, low));
        lanes::store_params(packed, params);

        let step = _mm512_castsi512_ps(step);
        let base = _mm512_sub_ps(min, _mm512_mul_ps(step, _mm512_set1_ps(8.0)));
        let inverse = _mm512_div_ps(_mm512_set1_ps(1.0), step);
        let first = _mm512_mul_ps(base, inverse);
        let offset = _mm512_sub_ps(_mm512_set1_ps(-0.5625), first);
        lanes::store_floats(base, &mut self.base[at..]);
        lanes::store_floats(step, &mut self.step[at..]);
        lanes::store_floats(inverse, &mut self.inverse[at..]);
        lanes::store_floats(offset, &mut self.offset[at..]);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn get(&self, group: usize) -> Group {
        Group {
            bounds: Bounds::new(Cells {
                base: self.base[group],
                step: self.step[group],
            }),
            inverse: _mm512_set1_ps(self.inverse[group]),
            offset: _mm512_set1_ps(self.offset[group]),
        }
    }
}

impl Bounds {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn new(cells: Cells) -> Self {
        Self {
            base: _mm512_set1_ps(cells.base),
            step: _mm512_set1_ps(cells.step),
        }
    }

    /// The lower bounds of these cells.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn at(self, cells: __m512) -> __m512 {
        _mm512_fmadd_ps(cells, self.step, self.base)
    }

    /// [`crate::bf16::first_ordinal`] of the lower bounds of these cells, in the upper half of each lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn first_ordinal(self, cells: __m512) -> __m512i {
        // Computed with the opposite sign, a bound of zero is +0, its opposite -0, and needs no special case.
        let opposite = _mm512_castps_si512(_mm512_fnmsub_ps(cells, self.step, self.base));
        let positive = _mm512_srai_epi32::<31>(opposite);
        let sign = _mm512_set1_epi32(i32::MIN);
        // bound ^ (negative | sign), where bound = opposite ^ sign and negative = !positive
        let ordinal = _mm512_ternarylogic_epi32::<0xe1>(opposite, positive, sign);
        _mm512_add_epi32(ordinal, _mm512_srli_epi32::<16>(positive))
    }
}

impl Group {
    /// The codes of sixteen values: in the low byte of each lane (the rest isn't zero), and as numbers.
    ///
    /// Adding 2^23 rounds to a whole number, here of the position in steps less 0.5625: it is the code or one below,
    /// since all that division and sums can be wrong by is below 0.0625 steps. The exact bound decides which.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn codes(self, x: __m512) -> (__m512i, __m512) {
        const WHOLE: f32 = 8_388_608.0;
        let estimate = _mm512_fmadd_ps(x, self.inverse, self.offset);
        let whole = _mm512_add_ps(estimate, _mm512_set1_ps(WHOLE));
        let code = _mm512_sub_ps(whole, _mm512_set1_ps(WHOLE));
        let next = _mm512_sub_ps(whole, _mm512_set1_ps(WHOLE - 1.0));
        let reached = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, self.bounds.at(next));
        let bits = _mm512_castps_si512(whole);
        let bits = _mm512_mask_sub_epi32(bits, reached, bits, _mm512_set1_epi32(-1));
        (
            bits,
            _mm512_mask_add_ps(code, reached, code, _mm512_set1_ps(1.0)),
        )
    }
}
