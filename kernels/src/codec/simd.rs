//! The choice of a SIMD level, and each kernel at each level.

use crate::bits::{BitReader, BitWriter};
use crate::group::Params;
use crate::rows::{Matrix, MatrixMut};
use crate::scalar::{self, EmptyCell};

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
        self == Self::Scalar
    }
}

pub(super) fn split(_level: Simd, tile: &Matrix<'_>, params: &mut [Params], words: &mut [u64]) {
    scalar::split(tile, params, words);
}

pub(super) fn merge(
    _level: Simd,
    params: &[Params],
    widths: &[u8],
    words: &[u64],
    out: &mut MatrixMut<'_>,
) {
    scalar::merge(params, widths, words, out);
}

pub(super) fn encode_tail(
    _level: Simd,
    tile: &Matrix<'_>,
    a: &mut BitWriter<'_>,
    b: &mut BitWriter<'_>,
) {
    scalar::encode_tail(tile, a, b);
}

pub(super) fn decode_tail(
    _level: Simd,
    params: &[Params],
    words: &[u64],
    sections: (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    scalar::decode_tail(params, words, sections, out)
}

pub(crate) fn sum_words(position: u64, bytes: &[u8]) -> u64 {
    crate::checksum::sum_words(position, bytes)
}
