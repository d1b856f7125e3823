//! The lanes as an array: what every level means, and what runs where there are no wide registers.

use half::f16;

use super::{LANES, Simd};

/// Plain code.
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn each(value: impl Fn(usize) -> f32) -> [f32; LANES] {
    std::array::from_fn(value)
}

impl Simd for Portable {
    type F = [f32; LANES];
    type Words = [u32; LANES];

    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F {
        *from
    }

    #[inline(always)]
    fn store(self, value: Self::F, to: &mut [f32; LANES]) {
        *to = value;
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn widen_f16(self, from: &[u16; LANES]) -> Self::F {
        each(|i| f16::from_bits(from[i]).to_f32())
    }

    #[inline(always)]
    fn widen_bf16(self, from: &[u16; LANES]) -> Self::F {
        each(|i| f32::from_bits(u32::from(from[i]) << 16))
    }

    #[inline(always)]
    fn widen_i8(self, from: &[i8; LANES]) -> Self::F {
        each(|i| f32::from(from[i]))
    }

    #[inline(always)]
    fn words(self, from: &[u32; LANES]) -> Self::Words {
        *from
    }

    #[inline(always)]
    fn nibble(self, words: Self::Words, index: usize) -> Self::F {
        each(|i| f32::from((words[i] >> (4 * index) & 15) as u8))
    }

    #[inline(always)]
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if i < count { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn exponent(self, value: Self::F) -> Self::F {
        each(|i| f32::from_bits((value[i].to_bits() << 23).wrapping_add(1.0_f32.to_bits())))
    }
}
