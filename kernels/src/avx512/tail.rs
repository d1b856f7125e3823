//! The exact tail with AVX-512: 64 lanes of a bit plane are extracted or deposited by one instruction.

use core::arch::x86_64::*;

use super::lanes::{Lanes, Quarters, first_lanes, load_planes};
use super::{Bounds, Group, Groups};
use crate::bits::{BitReader, BitWriter};
use crate::group::Params;
use crate::rows::{Matrix, MatrixMut};
use crate::scalar::EmptyCell;

/// Sixteen planes of 64 lanes: `15 - j` holds bit `j`.
type Planes = [[u64; 8]; 2];

/// The cells of up to 64 lanes: the same numbers as [`crate::group::Rest`].
#[derive(Clone, Copy)]
struct Rests {
    /// The ordinal of each cell's first value.
    first: Lanes,
    /// Ones below and at the highest bit of each cell's count, zeros in absent lanes: bit `j + 1` says that the value has bit `j`.
    ones: Lanes,
    /// Indices below this have no extra bit.
    short: Lanes,
}

/// A run that is being encoded.
#[derive(Clone, Copy, Default)]
struct Outgoing {
    ones: Planes,
    values: Planes,
    /// The lanes with an extra bit, and those whose extra bit is set.
    long: u64,
    extra: u64,
}

/// A run that is being decoded.
#[derive(Clone, Copy)]
struct Incoming {
    rests: Rests,
    ones: Planes,
    values: Planes,
    present: u64,
}

/// As [`crate::scalar::encode_tail`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn encode_tail(tile: &Matrix<'_>, a: &mut BitWriter<'_>, b: &mut BitWriter<'_>) {
    let size = tile.size();
    let mut params = [Params::ESCAPE; 256];
    let params = &mut params[..size.groups];
    let groups = Groups::measure(tile, params);
    let mut runs = [Outgoing::default(); 4];
    let runs = &mut runs[..size.runs()];
    for (index, _) in params
        .iter()
        .enumerate()
        .filter(|(_, params)| !params.is_escape())
    {
        let group = groups.get(index);
        for (outgoing, run) in runs.iter_mut().zip(tile.row(index).chunks(64)) {
            outgoing.set(group, run);
        }
        for bit in 0..15 {
            let mut any = 0;
            for run in &*runs {
                let lanes = plane(&run.ones, bit + 1);
                a.put(
                    _pext_u64(plane(&run.values, bit), lanes),
                    lanes.count_ones(),
                );
                any |= lanes;
            }
            if any == 0 {
                break;
            }
        }
        for run in &*runs {
            b.put(_pext_u64(run.extra, run.long), run.long.count_ones());
        }
    }
}

/// As [`crate::scalar::decode_tail`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(crate) fn decode_tail(
    params: &[Params],
    words: &[u64],
    (a, b): (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    let size = out.size();
    let mut runs = [Incoming::none(); 4];
    let runs = &mut runs[..size.runs()];
    let rows = words[..size.words()].chunks_exact(size.runs() * 8);
    for ((index, params), words) in params.iter().enumerate().zip(rows) {
        if params.is_escape() {
            continue;
        }
        let bounds = Bounds::new(params.cells());
        let row = out.row(index);
        for ((incoming, run), words) in runs.iter_mut().zip(row.chunks(64)).zip(words.as_chunks().0)
        {
            incoming
                .set(bounds, run.len(), words)
                .ok_or(EmptyCell(index))?;
        }
        for bit in 0..15 {
            let mut any = 0;
            for run in runs.iter_mut() {
                let lanes = plane(&run.ones, bit + 1);
                *plane_mut(&mut run.values, bit) = _pdep_u64(a.take(lanes.count_ones()), lanes);
                any |= lanes;
            }
            if any == 0 {
                break;
            }
        }
        for (incoming, run) in runs.iter_mut().zip(row.chunks_mut(64)) {
            incoming.restore(b).store(run);
        }
    }
    Ok(())
}

/// The plane of bit `bit`.
fn plane(planes: &Planes, bit: usize) -> u64 {
    planes.as_flattened()[15 - bit]
}

fn plane_mut(planes: &mut Planes, bit: usize) -> &mut u64 {
    &mut planes.as_flattened_mut()[15 - bit]
}

impl Rests {
    /// The rests of cells with these numbers, `present` of them; `None` where one of these has no value.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn of_cells(bounds: Bounds, cells: Quarters<__m512>, present: u64) -> Option<Self> {
        let first = cells.map(|c| bounds.first_ordinal(c)).high_halves();
        let one = _mm512_set1_ps(1.0);
        let next = cells
            .map(|c| bounds.first_ordinal(_mm512_add_ps(c, one)))
            .high_halves();
        let counts = next.zip(first, |next, first| _mm512_sub_epi16(next, first));
        if !counts.test(_mm512_set1_epi16(-1)) & present != 0 {
            return None;
        }
        let smeared = counts.map(|v| {
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<1>(v));
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<2>(v));
            let v = _mm512_or_si512(v, _mm512_srli_epi16::<4>(v));
            _mm512_or_si512(v, _mm512_srli_epi16::<8>(v))
        });
        let one = _mm512_set1_epi16(1);
        let short = smeared.zip(counts, |ones, count| {
            _mm512_add_epi16(_mm512_sub_epi16(ones, count), one)
        });
        Some(Self {
            first,
            ones: smeared.only(present),
            short,
        })
    }
}

impl Outgoing {
    /// Codes up to 64 values.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn set(&mut self, group: Group, run: &[u16]) {
        let lanes = Lanes::load(run);
        let present = first_lanes(run.len());
        let cells = lanes.quarters().map(|x| group.codes(x).1);
        let Some(rests) = Rests::of_cells(group.bounds, cells, present) else {
            // Impossible: each of these cells holds a value.
            *self = Self::default();
            return;
        };
        let index = lanes
            .ordinals()
            .zip(rests.first, |o, first| _mm512_sub_epi16(o, first));
        let sum = index.zip(rests.short, |index, short| _mm512_add_epi16(index, short));
        let long = index.at_least(rests.short);
        let half = |long, index, sum| _mm512_mask_srli_epi16::<1>(index, long, sum);
        let values = Lanes {
            low: half(long as u32, index.low, sum.low),
            high: half((long >> 32) as u32, index.high, sum.high),
        };
        rests.ones.store_planes(&mut self.ones);
        values.store_planes(&mut self.values);
        self.long = long & present;
        self.extra = sum.test(_mm512_set1_epi16(1));
    }
}

impl Incoming {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn none() -> Self {
        let zero = _mm512_setzero_si512();
        let lanes = Lanes {
            low: zero,
            high: zero,
        };
        let rests = Rests {
            first: lanes,
            ones: lanes,
            short: lanes,
        };
        Self {
            rests,
            ones: Planes::default(),
            values: Planes::default(),
            present: 0,
        }
    }

    /// Reads the codes of up to 64 values; `None` where one names a cell without values.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn set(&mut self, bounds: Bounds, count: usize, words: &[u64; 8]) -> Option<()> {
        let codes = Quarters::of_bytes(load_planes(words));
        let cells = codes.map(|code| _mm512_cvtepi32_ps(code));
        self.present = first_lanes(count);
        self.rests = Rests::of_cells(bounds, cells, self.present)?;
        self.rests.ones.store_planes(&mut self.ones);
        self.values = Planes::default();
        Some(())
    }

    /// The values' bit patterns, once section A is read.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn restore(&self, b: &mut BitReader<'_>) -> Lanes {
        let Rests { first, short, .. } = self.rests;
        let values = Lanes::load_planes(&self.values);
        let long = values.at_least(short) & self.present;
        let extra = _pdep_u64(b.take(long.count_ones()), long);
        let one = _mm512_set1_epi16(1);
        let index = |value, short, long, extra| {
            let doubled = _mm512_add_epi16(value, value);
            let sum = _mm512_mask_add_epi16(doubled, extra, doubled, one);
            _mm512_mask_sub_epi16(value, long, sum, short)
        };
        let high = |mask: u64| (mask >> 32) as u32;
        let index = Lanes {
            low: index(values.low, short.low, long as u32, extra as u32),
            high: index(values.high, short.high, high(long), high(extra)),
        };
        index
            .zip(first, |index, first| _mm512_add_epi16(index, first))
            .patterns()
    }
}
