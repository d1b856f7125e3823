//! Merging: codes of few planes by looking their values up, codes of many by computing every lane.
//!
//! A group of up to six planes has at most 64 different values, as many as lanes: they are computed once for all its runs and
//! looked up byte by byte, which takes half the instructions of computing every lane.

use core::arch::x86_64::*;

use super::lanes::{self, Lanes, Quarters};
use super::lookup::Lookup;
use crate::group::Params;
use crate::rows::MatrixMut;

/// The midpoints that `width` planes can stand for, in steps from the first bound, in the order of [`Lookup`]'s tables.
static MIDPOINTS: [[[f32; 16]; 4]; 7] = {
    let mut all = [[[0.0; 16]; 4]; 7];
    let mut width = 0;
    while width < 7 {
        let mut place = 0;
        while place < 64 {
            let (vector, lane) = (place / 16, place % 16);
            let code = if width == 6 {
                vector / 2 * 32 + lane * 2 + vector % 2
            } else {
                place
            };
            all[width][vector][lane] = (code * 2 + 1) as f32 * (128 >> width) as f32;
            place += 1;
        }
        width += 1;
    }
    all
};

/// A group's [`crate::group::Cells`] in every lane.
#[derive(Clone, Copy)]
struct Cells {
    base: __m512,
    step: __m512,
}

/// As [`crate::scalar::merge`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn merge(params: &[Params], widths: &[u8], words: &[u64], out: &mut MatrixMut<'_>) {
    let size = out.size();
    let rows = words[..size.words()].chunks_exact(size.runs() * 8);
    let groups = params.iter().zip(widths).zip(rows).enumerate();
    for (index, ((params, &width), words)) in groups {
        if params.is_escape() {
            continue;
        }
        let cells = Cells::new(*params);
        let runs = out.row(index).chunks_mut(64);
        let runs = runs.zip(words.as_chunks::<8>().0);
        if let Some(midpoints) = MIDPOINTS.get(usize::from(width)) {
            let lookup = Lookup::new(width);
            match width {
                ..=4 => {
                    let table = cells.nearest(&midpoints[0]);
                    runs.for_each(|(run, words)| lookup.of_16(words, table).store(run));
                }
                5 => {
                    let tables = [cells.nearest(&midpoints[0]), cells.nearest(&midpoints[1])];
                    runs.for_each(|(run, words)| lookup.of_32(words, tables).store(run));
                }
                _ => {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|i| cells.nearest(&midpoints[i]));
                    let tables = Quarters([a, b, c, d]).high_halves();
                    runs.for_each(|(run, words)| lookup.of_64(words, tables).store(run));
                }
            }
        } else {
            runs.for_each(|(run, words)| cells.midpoints(words, width).store(run));
        }
    }
}

impl Cells {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn new(params: Params) -> Self {
        let both = _mm512_set1_epi32(params.0.cast_signed());
        let lo = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(both));
        let upper = _mm512_set1_epi32(0xffff_0000u32.cast_signed());
        let step = _mm512_castsi512_ps(_mm512_and_si512(both, upper));
        Self {
            base: _mm512_fnmadd_ps(step, _mm512_set1_ps(8.0), lo),
            step,
        }
    }

    /// The positions as values: BF16 in the upper halves, anything in the lower ones.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn at(self, steps: __m512) -> __m512i {
        lanes::nearest(_mm512_fmadd_ps(steps, self.step, self.base))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn nearest(self, steps: &[f32; 16]) -> __m512i {
        self.at(lanes::load_floats(steps))
    }

    /// A run of seven or eight planes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn midpoints(self, words: &[u64; 8], width: u8) -> Lanes {
        /// As f32, 2^23 and a byte are `WHOLE | byte`.
        const WHOLE: f32 = 8_388_608.0;
        // The midpoint of two cells is the bound between them, of a single cell half a step.
        let (middle, less) = if width == 8 {
            (0, WHOLE - 0.5)
        } else {
            (1, WHOLE)
        };
        let codes = _mm512_or_si512(lanes::load_planes(words), _mm512_set1_epi8(middle));
        let whole = _mm512_castps_si512(_mm512_set1_ps(WHOLE));
        let values = Quarters::of_bytes_over(whole, codes).map(|code| {
            self.at(_mm512_sub_ps(
                _mm512_castsi512_ps(code),
                _mm512_set1_ps(less),
            ))
        });
        values.high_halves()
    }
}
