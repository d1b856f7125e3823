//! The choice of a SIMD level, and each kernel at each level.
#![expect(unsafe_code, reason = "calls of functions that need CPU features")]

use crate::bits::{BitReader, BitWriter};
use crate::group::Params;
use crate::rows::{Matrix, MatrixMut};
use crate::scalar::{self, EmptyCell};
#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Whether the CPU has all these features.
#[cfg(target_arch = "x86_64")]
macro_rules! has {
    ($($feature:tt),*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
}

/// An instruction set, in ascending order of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Simd {
    /// One element at a time: the reference.
    Scalar,
    /// AVX2 with FMA and BMI2.
    Avx2,
    /// AVX-512 F, BW, VL, DQ, CD with BMI2.
    Avx512,
}

impl Simd {
    /// All levels.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The best level this CPU has.
    pub fn detect() -> Self {
        let mut best_first = Self::ALL.into_iter().rev();
        best_first
            .find(|level| level.is_available())
            .unwrap_or(Self::Scalar)
    }

    /// Whether this CPU has the level.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has!("avx2", "fma", "bmi1", "bmi2", "popcnt"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                has!(
                    "avx512f",
                    "avx512bw",
                    "avx512vl",
                    "avx512dq",
                    "avx512vbmi",
                    "gfni",
                    "bmi2",
                    "popcnt"
                )
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

/// Calls a kernel at a level that [`Codec`](crate::Codec) found available.
macro_rules! dispatch {
    ($level:expr, $kernel:ident($($argument:expr),*)) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => {
                // SAFETY: a codec of this level is only made where the CPU has all its features.
                unsafe { avx512::$kernel($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => {
                // SAFETY: as above.
                unsafe { avx2::$kernel($($argument),*) }
            }
            _ => scalar::$kernel($($argument),*),
        }
    };
}

/// Asks for the memory this many bytes after `bytes` starts, which needn't be valid; where there is no way to ask, it doesn't.
#[inline]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "there is no way to ask")
)]
pub(super) fn prefetch(bytes: &[u8], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let pointer = bytes.as_ptr().wrapping_add(ahead);
        // SAFETY: every x86-64 CPU has SSE, and a hint about an invalid address is ignored.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer.cast()) };
    }
}

pub(super) fn split(level: Simd, tile: &Matrix<'_>, params: &mut [Params], words: &mut [u64]) {
    dispatch!(level, split(tile, params, words));
}

pub(super) fn merge(
    level: Simd,
    params: &[Params],
    widths: &[u8],
    words: &[u64],
    out: &mut MatrixMut<'_>,
) {
    dispatch!(level, merge(params, widths, words, out));
}

pub(super) fn encode_tail(
    level: Simd,
    tile: &Matrix<'_>,
    a: &mut BitWriter<'_>,
    b: &mut BitWriter<'_>,
) {
    dispatch!(level, encode_tail(tile, a, b));
}

pub(super) fn decode_tail(
    level: Simd,
    params: &[Params],
    words: &[u64],
    sections: (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    dispatch!(level, decode_tail(params, words, sections, out))
}
