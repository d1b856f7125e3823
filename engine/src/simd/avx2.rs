//! The lanes in two 256-bit registers.
#![cfg(target_arch = "x86_64")]
#![expect(
    unsafe_code,
    reason = "vector instructions need a machine that has them, which a value of the type proves"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "counts and indices of lanes are below 17"
)]

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    pub(super) fn run(self, kernel: impl Kernel) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled(simd: Avx2, kernel: impl Kernel) {
            kernel.run(simd);
        }
        // SAFETY: `detect` found all of the features that `compiled` asks for.
        unsafe { compiled(self, kernel) }
    }
}

/// One operation of the trait, whose body may use the level's instructions.
macro_rules! op {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $body:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $result {
            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn compiled($($arg: $type),*) -> $result {
                $body
            }
            // SAFETY: `self` is proof of the features that `compiled` asks for.
            unsafe { compiled($($arg),*) }
        }
    };
}

/// Lanes 0 to 7 and 8 to 15.
type Pair = [__m256; 2];
type Words = [__m256i; 2];

impl Simd for Avx2 {
    type F = Pair;
    type Words = Words;

    const WIDE: bool = false;

    op!(splat(value: f32) -> Pair, [_mm256_set1_ps(value); 2]);
    op!(load(from: &[f32; LANES]) -> Pair, {
        let (low, high) = from.split_at(8);
        // SAFETY: the first half has the register's 8 floats; the load needs no alignment.
        let low = unsafe { _mm256_loadu_ps(low.as_ptr()) };
        // SAFETY: so has the second half.
        let high = unsafe { _mm256_loadu_ps(high.as_ptr()) };
        [low, high]
    });
    op!(store(value: Pair, to: &mut [f32; LANES]) -> (), {
        let (low, high) = to.split_at_mut(8);
        // SAFETY: the first half has the register's 8 floats; the store needs no alignment.
        unsafe { _mm256_storeu_ps(low.as_mut_ptr(), value[0]) };
        // SAFETY: so has the second half.
        unsafe { _mm256_storeu_ps(high.as_mut_ptr(), value[1]) };
    });
    op!(add(a: Pair, b: Pair) -> Pair, [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])]);
    op!(sub(a: Pair, b: Pair) -> Pair, [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])]);
    op!(mul(a: Pair, b: Pair) -> Pair, [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]);
    op!(div(a: Pair, b: Pair) -> Pair, [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])]);
    op!(max(a: Pair, b: Pair) -> Pair, [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])]);
    op!(min(a: Pair, b: Pair) -> Pair, [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])]);
    op!(mul_add(a: Pair, b: Pair, c: Pair) -> Pair, {
        [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
    });
    op!(widen_f16(from: &[u16; LANES]) -> Pair, {
        let (low, high) = from.split_at(8);
        // SAFETY: the first half has the register's 16 bytes; the load needs no alignment.
        let low = unsafe { _mm_loadu_si128(low.as_ptr().cast()) };
        // SAFETY: so has the second half.
        let high = unsafe { _mm_loadu_si128(high.as_ptr().cast()) };
        [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
    });
    op!(widen_bf16(from: &[u16; LANES]) -> Pair, {
        let (low, high) = from.split_at(8);
        // SAFETY: the first half has the register's 16 bytes; the load needs no alignment.
        let low = unsafe { _mm_loadu_si128(low.as_ptr().cast()) };
        // SAFETY: so has the second half.
        let high = unsafe { _mm_loadu_si128(high.as_ptr().cast()) };
        [low, high].map(|half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half))))
    });
    op!(widen_i8(from: &[i8; LANES]) -> Pair, {
        // SAFETY: the array has the register's 16 bytes; the load needs no alignment.
        let codes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        let high = _mm_unpackhi_epi64(codes, codes);
        [codes, high].map(|half| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half)))
    });
    op!(words(from: &[u32; LANES]) -> Words, {
        let (low, high) = from.split_at(8);
        // SAFETY: the first half has the register's 32 bytes; the load needs no alignment.
        let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast()) };
        // SAFETY: so has the second half.
        let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast()) };
        [low, high]
    });
    op!(nibble(words: Words, index: usize) -> Pair, {
        let shift = _mm_cvtsi32_si128(4 * index as i32);
        let mask = _mm256_set1_epi32(15);
        words.map(|half| _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(half, shift), mask)))
    });
    op!(first(count: usize, a: Pair, b: Pair) -> Pair, {
        let count = _mm256_set1_epi32(count as i32);
        let low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
        [
            _mm256_blendv_ps(b[0], a[0], _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, low))),
            _mm256_blendv_ps(b[1], a[1], _mm256_castsi256_ps(_mm256_cmpgt_epi32(count, high))),
        ]
    });
    op!(exponent(value: Pair) -> Pair, {
        let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
        value.map(|half| {
            let bits = _mm256_slli_epi32::<23>(_mm256_castps_si256(half));
            _mm256_castsi256_ps(_mm256_add_epi32(bits, one))
        })
    });
}
