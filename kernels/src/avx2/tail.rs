//! The exact tail with AVX2.

use core::arch::x86_64::{_pdep_u64, _pext_u64};

use super::{Coder, codes_of, first_lanes, measure, padded, planes};
use crate::bf16;
use crate::bits::{BitReader, BitWriter};
use crate::group::{Cells, Params};
use crate::rows::{Matrix, MatrixMut};
use crate::scalar::EmptyCell;

/// 64 numbers of 16 bits.
type Lanes = [u16; 64];

/// The cells of up to 64 lanes: the same numbers as [`crate::group::Rest`].
struct Rests {
    /// The ordinal of each cell's first value.
    first: Lanes,
    /// Ones below and at the highest bit of each cell's count: bit `j + 1` says that the value has bit `j`.
    ones: Lanes,
    /// Indices below this have no extra bit.
    short: Lanes,
}

/// A run that is being encoded. Planes are most significant first.
#[derive(Clone, Copy, Default)]
struct Outgoing {
    ones: [u64; 16],
    values: [u64; 16],
    /// The lanes with an extra bit, and those whose extra bit is set.
    long: u64,
    extra: u64,
}

/// A run that is being decoded.
struct Incoming {
    rests: Rests,
    ones: [u64; 16],
    values: [u64; 16],
    present: u64,
}

/// As [`crate::scalar::encode_tail`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
pub(crate) fn encode_tail(tile: &Matrix<'_>, a: &mut BitWriter<'_>, b: &mut BitWriter<'_>) {
    let size = tile.size();
    let mut runs = [Outgoing::default(); 4];
    let runs = &mut runs[..size.runs()];
    for group in 0..size.groups {
        let row = tile.row(group);
        let params = measure(row);
        if params.is_escape() {
            continue;
        }
        let coder = Coder::new(params.cells());
        for (outgoing, run) in runs.iter_mut().zip(row.chunks(64)) {
            *outgoing = Outgoing::new(&coder, run);
        }
        for bit in 0..15 {
            let mut any = 0;
            for run in &*runs {
                let lanes = run.ones[14 - bit];
                a.put(_pext_u64(run.values[15 - bit], lanes), lanes.count_ones());
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
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
pub(crate) fn decode_tail(
    params: &[Params],
    words: &[u64],
    (a, b): (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    let size = out.size();
    let mut runs = [const { Incoming::none() }; 4];
    let runs = &mut runs[..size.runs()];
    let rows = words[..size.words()].chunks_exact(size.runs() * 8);
    for ((group, params), words) in params.iter().enumerate().zip(rows) {
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        let row = out.row(group);
        for ((incoming, run), words) in runs.iter_mut().zip(row.chunks(64)).zip(words.as_chunks().0)
        {
            *incoming = Incoming::new(cells, run.len(), words).ok_or(EmptyCell(group))?;
        }
        for bit in 0..15 {
            let mut any = 0;
            for run in runs.iter_mut() {
                let lanes = run.ones[14 - bit];
                run.values[15 - bit] = _pdep_u64(a.take(lanes.count_ones()), lanes);
                any |= lanes;
            }
            if any == 0 {
                break;
            }
        }
        for (incoming, run) in runs.iter().zip(row.chunks_mut(64)) {
            run.copy_from_slice(&incoming.restore(b)[..run.len()]);
        }
    }
    Ok(())
}

impl Rests {
    /// The rests of cells with these numbers; `None` where one of those `present` has no value.
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn new(cells: Cells, codes: &[u8; 64], present: u64) -> Option<Self> {
        let (mut first, mut ones, mut short) = ([0; 64], [0; 64], [0; 64]);
        let mut empty = [0u8; 64];
        for lane in 0..64 {
            let code = f32::from(codes[lane]);
            let start = first_ordinal(cells, code);
            let count = first_ordinal(cells, code + 1.0).wrapping_sub(start);
            let smeared = count | count >> 1;
            let smeared = smeared | smeared >> 2;
            let smeared = smeared | smeared >> 4;
            let smeared = smeared | smeared >> 8;
            first[lane] = start;
            ones[lane] = smeared;
            short[lane] = (smeared - count).wrapping_add(1);
            empty[lane] = u8::from(count == 0) << 7;
        }
        (planes(&empty)[0] & present == 0).then_some(Self { first, ones, short })
    }
}

/// [`bf16::first_ordinal`] of a cell's lower bound, without branches.
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn first_ordinal(cells: Cells, cell: f32) -> u16 {
    const SIGN: u32 = 0x8000_0000;
    // Computed with the opposite sign, a bound of zero is +0, its opposite -0, and needs no special case.
    let opposite = (-(cell * cells.step) - cells.base).to_bits();
    let positive = (opposite.cast_signed() >> 31).cast_unsigned();
    let ordinal = opposite ^ SIGN ^ (!positive | SIGN);
    (ordinal.wrapping_add(positive >> 16) >> 16) as u16
}

impl Outgoing {
    /// Codes up to 64 values.
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn new(coder: &Coder, run: &[u16]) -> Self {
        let lanes = padded(run);
        let present = first_lanes(run.len());
        let Some(rests) = Rests::new(coder.cells, &coder.codes(&lanes), present) else {
            // Impossible: each of these cells holds a value.
            return Self::default();
        };
        let (mut values, mut flags) = ([0; 64], [0u8; 64]);
        for lane in 0..64 {
            let negative = (lanes[lane].cast_signed() >> 15).cast_unsigned();
            let ordinal = lanes[lane] ^ (negative | 0x8000);
            let index = ordinal.wrapping_sub(rests.first[lane]);
            let sum = index.wrapping_add(rests.short[lane]);
            let long = index >= rests.short[lane];
            values[lane] = if long { sum >> 1 } else { index };
            flags[lane] = u8::from(long) << 7 | (sum as u8 & 1) << 6;
        }
        let [long, extra, ..] = planes(&flags);
        let ones = wide_planes(&rests.ones).map(|plane| plane & present);
        Self {
            ones,
            values: wide_planes(&values),
            long: long & present,
            extra,
        }
    }
}

impl Incoming {
    const fn none() -> Self {
        let rests = Rests {
            first: [0; 64],
            ones: [0; 64],
            short: [0; 64],
        };
        Self {
            rests,
            ones: [0; 16],
            values: [0; 16],
            present: 0,
        }
    }

    /// Reads the codes of up to 64 values; `None` where one names a cell without values.
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn new(cells: Cells, count: usize, words: &[u64; 8]) -> Option<Self> {
        let present = first_lanes(count);
        let rests = Rests::new(cells, &codes_of(words), present)?;
        let ones = wide_planes(&rests.ones).map(|plane| plane & present);
        Some(Self {
            rests,
            ones,
            values: [0; 16],
            present,
        })
    }

    /// The values' bit patterns, once section A is read.
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn restore(&self, b: &mut BitReader<'_>) -> Lanes {
        let Rests { first, short, .. } = &self.rests;
        let values = lanes_of(&self.values);
        let mut flags = [0u8; 64];
        for lane in 0..64 {
            flags[lane] = u8::from(values[lane] >= short[lane]) << 7;
        }
        let long = planes(&flags)[0] & self.present;
        let extra = _pdep_u64(b.take(long.count_ones()), long);
        let extra = codes_of(&[0, 0, 0, 0, 0, 0, 0, extra]);
        let mut patterns = [0; 64];
        for lane in 0..64 {
            let value = values[lane];
            let sum = value
                .wrapping_mul(2)
                .wrapping_add(u16::from(extra[lane]))
                .wrapping_sub(short[lane]);
            let index = if value >= short[lane] { sum } else { value };
            patterns[lane] = bf16::from_ordinal(first[lane].wrapping_add(index));
        }
        patterns
    }
}

/// The sixteen planes of 16-bit numbers, most significant first.
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn wide_planes(lanes: &Lanes) -> [u64; 16] {
    let mut all = [0; 16];
    let (halves, _) = all.as_chunks_mut::<8>();
    halves[0] = planes(&lanes.map(|lane| (lane >> 8) as u8));
    halves[1] = planes(&lanes.map(|lane| lane as u8));
    all
}

/// The inverse of [`wide_planes`].
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn lanes_of(planes: &[u64; 16]) -> Lanes {
    let (halves, _) = planes.as_chunks::<8>();
    let (high, low) = (codes_of(&halves[0]), codes_of(&halves[1]));
    let mut lanes = [0; 64];
    for ((lane, high), low) in lanes.iter_mut().zip(high).zip(low) {
        *lane = u16::from(high) << 8 | u16::from(low);
    }
    lanes
}
