//! The lanes in one 512-bit register.
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

/// Proof that the machine has AVX-512 F, BW and VL, and what AVX2 machines have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    pub(super) fn run(self, kernel: impl Kernel) {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
        fn compiled(simd: Avx512, kernel: impl Kernel) {
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
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
            fn compiled($($arg: $type),*) -> $result {
                $body
            }
            // SAFETY: `self` is proof of the features that `compiled` asks for.
            unsafe { compiled($($arg),*) }
        }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type Words = __m512i;

    const WIDE: bool = true;

    op!(splat(value: f32) -> __m512, _mm512_set1_ps(value));
    op!(load(from: &[f32; LANES]) -> __m512, {
        // SAFETY: the array has the register's 16 floats; the load needs no alignment.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    });
    op!(store(value: __m512, to: &mut [f32; LANES]) -> (), {
        // SAFETY: the array has the register's 16 floats; the store needs no alignment.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
    });
    op!(add(a: __m512, b: __m512) -> __m512, _mm512_add_ps(a, b));
    op!(sub(a: __m512, b: __m512) -> __m512, _mm512_sub_ps(a, b));
    op!(mul(a: __m512, b: __m512) -> __m512, _mm512_mul_ps(a, b));
    op!(div(a: __m512, b: __m512) -> __m512, _mm512_div_ps(a, b));
    op!(max(a: __m512, b: __m512) -> __m512, _mm512_max_ps(a, b));
    op!(min(a: __m512, b: __m512) -> __m512, _mm512_min_ps(a, b));
    op!(mul_add(a: __m512, b: __m512, c: __m512) -> __m512, _mm512_fmadd_ps(a, b, c));
    op!(widen_f16(from: &[u16; LANES]) -> __m512, {
        // SAFETY: the array has the 32 bytes of half a register; the load needs no alignment.
        let halves = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        _mm512_cvtph_ps(halves)
    });
    op!(widen_bf16(from: &[u16; LANES]) -> __m512, {
        // SAFETY: the array has the 32 bytes of half a register; the load needs no alignment.
        let halves = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
    });
    op!(widen_i8(from: &[i8; LANES]) -> __m512, {
        // SAFETY: the array has the 16 bytes of a quarter register; the load needs no alignment.
        let codes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))
    });
    op!(words(from: &[u32; LANES]) -> __m512i, {
        // SAFETY: the array has the register's 64 bytes; the load needs no alignment.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    });
    // The permutation looks only at the lowest four bits of a lane, so that a shift and a table give the code as a float.
    op!(nibble(words: __m512i, index: usize) -> __m512, {
        let table = _mm512_setr_ps(
            0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
        );
        let shift = _mm_cvtsi32_si128(4 * index as i32);
        _mm512_permutexvar_ps(_mm512_srl_epi32(words, shift), table)
    });
    op!(first(count: usize, a: __m512, b: __m512) -> __m512, {
        let mask = 0xffff_u32 >> (LANES - count);
        _mm512_mask_blend_ps(mask as u16, b, a)
    });
    op!(exponent(value: __m512) -> __m512, {
        let bits = _mm512_slli_epi32::<23>(_mm512_castps_si512(value));
        let one = _mm512_castps_si512(_mm512_set1_ps(1.0));
        _mm512_castsi512_ps(_mm512_add_epi32(bits, one))
    });
}
