//! The kernels with AVX2: loops over arrays of 64 lanes, which the compiler turns into vectors.
//!
//! Intrinsics are only where it can't: bits to planes and back, and bit extraction. This level is for CPUs without AVX-512's byte
//! permutations; it is written to be read, and about half as fast.
#![expect(unsafe_code, reason = "loads and stores of whole vectors")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "halves and bytes of numbers"
)]

mod tail;

use core::arch::x86_64::*;

use crate::bf16;
use crate::group::{Cells, Params};
use crate::rows::{Matrix, MatrixMut};
pub(crate) use tail::{decode_tail, encode_tail};

/// What it takes to code one group's values.
#[derive(Clone, Copy)]
struct Coder {
    cells: Cells,
    /// `1 / step`.
    inverse: f32,
    /// Minus the first bound in steps, and less a little: see [`Coder::codes`].
    offset: f32,
}

/// As [`crate::scalar::split`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
pub(crate) fn split(tile: &Matrix<'_>, params: &mut [Params], words: &mut [u64]) {
    let size = tile.size();
    let rows = words[..size.words()].chunks_exact_mut(size.runs() * 8);
    for ((group, words), params) in rows.enumerate().zip(params) {
        let row = tile.row(group);
        *params = measure(row);
        if params.is_escape() {
            words.fill(0);
            continue;
        }
        let coder = Coder::new(params.cells());
        for (run, words) in row.chunks(64).zip(words.as_chunks_mut::<8>().0) {
            let present = first_lanes(run.len());
            *words = planes(&coder.codes(&padded(run))).map(|plane| plane & present);
        }
    }
}

/// As [`crate::scalar::merge`].
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
pub(crate) fn merge(params: &[Params], widths: &[u8], words: &[u64], out: &mut MatrixMut<'_>) {
    let size = out.size();
    let rows = words[..size.words()].chunks_exact(size.runs() * 8);
    for (group, ((params, &width), words)) in params.iter().zip(widths).zip(rows).enumerate() {
        if params.is_escape() {
            continue;
        }
        let Cells { base, step } = params.cells();
        // The midpoint of a cell that is cut short is the next bit, of a single cell half a step.
        let middle = (0x80u16 >> width) as u8;
        let present = !((0xffu16 >> width) as u8);
        let half = if width == 8 { 0.5 } else { 0.0 };
        for (run, words) in out.row(group).chunks_mut(64).zip(words.as_chunks().0) {
            let codes = codes_of(words);
            let mut values = [0; 64];
            for (bits, code) in values.iter_mut().zip(codes) {
                let code = f32::from(code & present | middle) + half;
                *bits = bf16::nearest(base + code * step);
            }
            run.copy_from_slice(&values[..run.len()]);
        }
    }
}

/// As [`Params::measure`].
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn measure(row: &[u16]) -> Params {
    let (mut low, mut high) = (u16::MAX, 0);
    for &bits in row {
        // The ordinal without a branch.
        let negative = (bits.cast_signed() >> 15).cast_unsigned();
        let ordinal = bits ^ (negative | 0x8000);
        low = low.min(ordinal);
        high = high.max(ordinal);
    }
    Params::from_extremes(bf16::from_ordinal(low), bf16::from_ordinal(high))
}

impl Coder {
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn new(cells: Cells) -> Self {
        let inverse = 1.0 / cells.step;
        Self {
            cells,
            inverse,
            offset: -0.5625 - cells.base * inverse,
        }
    }

    /// The codes of 64 values.
    ///
    /// Adding 2^23 rounds to a whole number, here of the position in steps less 0.5625: it is the code or one below,
    /// since all that division and sums can be wrong by is below 0.0625 steps. The exact bound decides which.
    #[inline]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
    fn codes(&self, run: &[u16; 64]) -> [u8; 64] {
        const WHOLE: f32 = 8_388_608.0;
        let mut codes = [0; 64];
        for (code, &bits) in codes.iter_mut().zip(run) {
            let x = bf16::value(bits);
            let whole = x * self.inverse + self.offset + WHOLE;
            let next = self.cells.base + (whole - (WHOLE - 1.0)) * self.cells.step;
            *code = (whole.to_bits() + u32::from(x >= next)) as u8;
        }
        codes
    }
}

/// The first of `count` lanes; `count` is at least 1.
fn first_lanes(count: usize) -> u64 {
    u64::MAX >> 64usize.saturating_sub(count)
}

/// 64 lanes; those past the run's end repeat its first element, so that they have a code.
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn padded(run: &[u16]) -> [u16; 64] {
    if let Some(run) = run.first_chunk() {
        return *run;
    }
    let mut lanes = [run[0]; 64];
    lanes[..run.len()].copy_from_slice(run);
    lanes
}

/// The planes of 64 bytes, most significant first.
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn planes(bytes: &[u8; 64]) -> [u64; 8] {
    let (halves, _) = bytes.as_chunks::<32>();
    let (mut low, mut high) = (load(&halves[0]), load(&halves[1]));
    let mut planes = [0; 8];
    for plane in &mut planes {
        let mask = |v| u64::from(_mm256_movemask_epi8(v).cast_unsigned());
        *plane = mask(low) | mask(high) << 32;
        low = _mm256_add_epi8(low, low);
        high = _mm256_add_epi8(high, high);
    }
    planes
}

/// The inverse of [`planes`].
#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn codes_of(planes: &[u64; 8]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (shift, bytes) in [0, 32].into_iter().zip(bytes.as_chunks_mut::<32>().0) {
        // Byte `lane / 8` of the word to each lane, there the lane's bit.
        let spread = _mm256_set_epi64x(
            0x0303_0303_0303_0303,
            0x0202_0202_0202_0202,
            0x0101_0101_0101_0101,
            0,
        );
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
        let mut codes = _mm256_setzero_si256();
        for plane in planes {
            let word = _mm256_set1_epi32(((plane >> shift) as u32).cast_signed());
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(word, spread), bit);
            let set = _mm256_cmpeq_epi8(bits, bit);
            codes = _mm256_sub_epi8(_mm256_add_epi8(codes, codes), set);
        }
        store(codes, bytes);
    }
    bytes
}

#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
fn store(vector: __m256i, bytes: &mut [u8; 32]) {
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}
