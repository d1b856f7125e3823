//! Sixteen floats at a time, on three levels that agree to the last bit.
//!
//! Each kernel is written once, over [`Simd`], and compiled for each [`Level`]; which one runs is decided at run time. The
//! operations are exactly those whose result IEEE 754 fixes: no approximate reciprocals, no reductions in an order of the
//! machine's choice, and multiply-add always fused. So AVX-512, AVX2 and portable code give the same bits, and a token
//! drafted on one machine is verified on another. A ready-made SIMD crate was not used because none promises that.

mod avx2;
mod avx512;
mod portable;

#[cfg(test)]
mod tests;

use std::fmt;

/// How many floats a [`Simd::F`] has.
pub(crate) const LANES: usize = 16;

/// The operations that kernels are made of. A value of an implementing type proves that the machine has the instructions.
pub(crate) trait Simd: Copy {
    /// Sixteen floats.
    type F: Copy;
    /// Sixteen words of eight 4-bit codes each.
    type Words: Copy;

    /// Whether there are registers for 6 x 64 sums, or only for 6 x 16.
    const WIDE: bool;

    fn splat(self, value: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, value: Self::F, to: &mut [f32; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger of each pair, and `b` where they are equal or one is a NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each pair, and `b` where they are equal or one is a NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn widen_f16(self, from: &[u16; LANES]) -> Self::F;
    fn widen_bf16(self, from: &[u16; LANES]) -> Self::F;
    fn widen_i8(self, from: &[i8; LANES]) -> Self::F;
    fn words(self, from: &[u32; LANES]) -> Self::Words;
    /// Code `index`, counted from the lowest bits, of each word. `index` is below 8.
    fn nibble(self, words: Self::Words, index: usize) -> Self::F;
    /// The first `count` lanes of `a`, the others of `b`.
    fn first(self, count: usize, a: Self::F, b: Self::F) -> Self::F;
    /// Adds the bits of each lane, shifted left by 23, to those of 1.0: the last step of [`exp`].
    fn exponent(self, value: Self::F) -> Self::F;
}

/// A computation over sixteen lanes, compiled once per level.
pub(crate) trait Kernel {
    /// Runs the computation. Implementations are `#[inline(always)]`, so that the level's instructions reach the body.
    fn run<S: Simd>(self, simd: S);
}

/// A set of instructions that kernels can be compiled for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    Portable,
}

impl Level {
    /// The best level of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// All levels of this machine, the best first. The last one, portable code, runs everywhere, slowly.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        levels.extend(avx512::Avx512::detect().map(Kind::Avx512));
        #[cfg(target_arch = "x86_64")]
        levels.extend(avx2::Avx2::detect().map(Kind::Avx2));
        levels.push(Kind::Portable);
        levels.into_iter().map(Self).collect()
    }

    pub(crate) fn run(self, kernel: impl Kernel) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(simd) => simd.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(simd) => simd.run(kernel),
            Kind::Portable => kernel.run(portable::Portable),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "AVX2",
            Kind::Portable => "portable",
        })
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The exponential of each lane, within 2 units in the last place; below -87 it stays at that of -87, above 88 at that of 88.
///
/// The argument is split into `n ln 2 + r`, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to the integer n and leaves it in the
/// lowest bits, from where it moves into the exponent. The polynomial for e^r is that of the Cephes library's `expf`.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let ln2_high = s.splat(-0.693_359_4);
    let ln2_low = s.splat(2.121_944_4e-4);
    let round = s.splat(12_582_912.0);
    let x = s.min(s.max(x, s.splat(-87.0)), s.splat(88.0));
    let shifted = s.mul_add(x, s.splat(std::f32::consts::LOG2_E), round);
    let n = s.sub(shifted, round);
    let r = s.mul_add(n, ln2_low, s.mul_add(n, ln2_high, x));
    let mut p = s.splat(1.987_569_1e-4);
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        p = s.mul_add(p, r, s.splat(coefficient));
    }
    let p = s.add(s.mul_add(p, s.mul(r, r), r), s.splat(1.0));
    s.mul(p, s.exponent(shifted))
}

/// The sum of sixteen lanes, in one fixed order: halves are added to each other until one is left.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, value: S::F) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(value, &mut lanes);
    fold(lanes, |a, b| a + b)
}

/// The largest of sixteen lanes.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, value: S::F) -> f32 {
    let mut lanes = [0.0; LANES];
    s.store(value, &mut lanes);
    fold(lanes, |a, b| if a > b { a } else { b })
}

#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = combine(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}
