//! The exact tail with AVX-512: 64 lanes of a bit plane are extracted or deposited by one instruction.

use core::arch::x86_64::*;

use super::lanes::{Lanes, Quarters, first_lanes, load_planes};
use super::{Bounds, Group, Groups};
use crate::bits::{BitReader, BitWriter};
use crate::group::Params;
use crate::rows::{Matrix, MatrixMut};
use crate::scalar::EmptyCell;

/// What the planes leave of up to 64 lanes: the same numbers as [`crate::group::Rest`].
#[derive(Clone, Copy)]
struct Rests {
    /// The lanes that exist.
    present: u64,
    /// The ordinal of each cell's first value.
    first: Lanes,
    /// Ones below and at the highest bit of each cell's count: bit `j + 1` says that the value has bit `j`.
    ones: Lanes,
    /// Indices below this have no extra bit.
    short: Lanes,
    /// The values in section A.
    value: Lanes,
    /// The sums whose lowest bits are the extra ones.
    extra: u64,
}

/// As [`crate::scalar::encode_tail`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn encode_tail(tile: &Matrix<'_>, a: &mut BitWriter<'_>, b: &mut BitWriter<'_>) {
    let size = tile.size();
    let mut params = [Params::ESCAPE; 256];
    let params = &mut params[..size.groups];
    let groups = Groups::measure(tile, params);
    let mut rests = [Rests::none(); 4];
    let rests = &mut rests[..size.runs()];
    for (index, _) in params
        .iter()
        .enumerate()
        .filter(|(_, params)| !params.is_escape())
    {
        let group = groups.get(index);
        for (rest, run) in rests.iter_mut().zip(tile.row(index).chunks(64)) {
            *rest = Rests::of_values(group, run);
        }
        let mut bit = _mm512_set1_epi16(1);
        loop {
            let next = _mm512_slli_epi16::<1>(bit);
            let mut any = 0;
            for rest in &*rests {
                let lanes = rest.ones.test(next) & rest.present;
                a.put(_pext_u64(rest.value.test(bit), lanes), lanes.count_ones());
                any |= lanes;
            }
            if any == 0 {
                break;
            }
            bit = next;
        }
        for rest in &*rests {
            let lanes = rest.long() & rest.present;
            b.put(_pext_u64(rest.extra, lanes), lanes.count_ones());
        }
    }
}

/// As [`crate::scalar::decode_tail`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn decode_tail(
    params: &[Params],
    words: &[u64],
    (a, b): (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    let size = out.size();
    let mut rests = [Rests::none(); 4];
    let rests = &mut rests[..size.runs()];
    let rows = words[..size.words()].chunks_exact(size.runs() * 8);
    for ((index, params), words) in params.iter().enumerate().zip(rows) {
        if params.is_escape() {
            continue;
        }
        let bounds = Bounds::new(params.cells());
        let row = out.row(index);
        for ((rest, run), words) in rests
            .iter_mut()
            .zip(row.chunks(64))
            .zip(words.as_chunks().0)
        {
            *rest = Rests::of_planes(bounds, run.len(), words).ok_or(EmptyCell(index))?;
        }
        let mut bit = _mm512_set1_epi16(1);
        loop {
            let next = _mm512_slli_epi16::<1>(bit);
            let mut any = 0;
            for rest in rests.iter_mut() {
                let lanes = rest.ones.test(next) & rest.present;
                let set = _pdep_u64(a.take(lanes.count_ones()), lanes);
                rest.set(set, bit);
                any |= lanes;
            }
            if any == 0 {
                break;
            }
            bit = next;
        }
        for (rest, run) in rests.iter_mut().zip(row.chunks_mut(64)) {
            let long = rest.long() & rest.present;
            let extra = _pdep_u64(b.take(long.count_ones()), long);
            rest.restore(long, extra).store(run);
        }
    }
    Ok(())
}

impl Rests {
    /// No lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn none() -> Self {
        let zero = _mm512_setzero_si512();
        let lanes = Lanes {
            low: zero,
            high: zero,
        };
        Self {
            present: 0,
            first: lanes,
            ones: lanes,
            short: lanes,
            value: lanes,
            extra: 0,
        }
    }

    /// The rests of cells with these numbers, the values still zero; `None` where a cell has no value.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn of_cells(bounds: Bounds, cells: Quarters<__m512>, count: usize) -> Option<Self> {
        let first = cells.map(|c| bounds.first_ordinal(c)).high_halves();
        let one = _mm512_set1_ps(1.0);
        let next = cells
            .map(|c| bounds.first_ordinal(_mm512_add_ps(c, one)))
            .high_halves();
        let counts = next.zip(first, |next, first| _mm512_sub_epi16(next, first));
        let present = first_lanes(count);
        if !counts.test(_mm512_set1_epi16(-1)) & present != 0 {
            return None;
        }
        let ones = counts.map(|v| {
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<1>(v));
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<2>(v));
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<4>(v));
            _mm512_or_si512(v, _mm512_srli_epi16::<8>(v))
        });
        let one = _mm512_set1_epi16(1);
        let short = ones.zip(counts, |ones, count| {
            _mm512_add_epi16(_mm512_sub_epi16(ones, count), one)
        });
        Some(Self {
            present,
            first,
            ones,
            short,
            ..Self::none()
        })
    }

    /// The rests of up to 64 values.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn of_values(group: Group, run: &[u16]) -> Self {
        let lanes = Lanes::load(run);
        let cells = lanes.quarters().map(|x| group.codes(x).1);
        let Some(rest) = Self::of_cells(group.bounds, cells, run.len()) else {
            return Self::none();
        };
        let index = lanes
            .ordinals()
            .zip(rest.first, |o, first| _mm512_sub_epi16(o, first));
        let sum = index.zip(rest.short, |index, short| _mm512_add_epi16(index, short));
        let half = |long, index, sum| _mm512_mask_srli_epi16::<1>(index, long, sum);
        let long = index.at_least(rest.short);
        let value = Lanes {
            low: half(long as u32, index.low, sum.low),
            high: half((long >> 32) as u32, index.high, sum.high),
        };
        Self {
            value,
            extra: sum.test(_mm512_set1_epi16(1)),
            ..rest
        }
    }

    /// The rests of the cells that eight planes name, the values still zero; `None` where a cell has no value.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn of_planes(bounds: Bounds, count: usize, words: &[u64; 8]) -> Option<Self> {
        let codes = Quarters::of_bytes(load_planes(words));
        Self::of_cells(bounds, codes.map(|code| _mm512_cvtepi32_ps(code)), count)
    }

    /// The lanes with an extra bit, absent lanes included.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn long(&self) -> u64 {
        // In the encoder the values of long lanes are halved sums; these are at least `short` exactly if the index is.
        self.value.at_least(self.short)
    }

    /// Sets `bit` in these lanes of the values, where it isn't set yet.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn set(&mut self, lanes: u64, bit: __m512i) {
        let Lanes { low, high } = self.value;
        self.value = Lanes {
            low: _mm512_mask_add_epi16(low, lanes as u32, low, bit),
            high: _mm512_mask_add_epi16(high, (lanes >> 32) as u32, high, bit),
        };
    }

    /// The values' bit patterns, once all bits are known.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn restore(&self, long: u64, extra: u64) -> Lanes {
        let one = _mm512_set1_epi16(1);
        let index = |value, short, long, extra| {
            let doubled = _mm512_add_epi16(value, value);
            let sum = _mm512_mask_add_epi16(doubled, extra, doubled, one);
            _mm512_mask_sub_epi16(value, long, sum, short)
        };
        let index = Lanes {
            low: index(self.value.low, self.short.low, long as u32, extra as u32),
            high: index(
                self.value.high,
                self.short.high,
                (long >> 32) as u32,
                (extra >> 32) as u32,
            ),
        };
        index
            .zip(self.first, |index, first| _mm512_add_epi16(index, first))
            .patterns()
    }
}
