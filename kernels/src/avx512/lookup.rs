//! Values of short codes, looked up instead of computed.

use core::arch::x86_64::*;

use super::lanes::{Lanes, bytes, load_words};

/// How to look up the values of codes of up to six planes.
#[derive(Clone, Copy)]
pub(super) struct Lookup {
    order: __m512i,
    present: u64,
}

impl Lookup {
    /// For codes of `width` planes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn new(width: u8) -> Self {
        let width = usize::from(width);
        let first = LOOKUP_SHIFT[width];
        let present = ((1u64 << width) - 1) << first;
        Self {
            order: bytes(&LOOKUP_ORDER[width]),
            present: present * 0x0101_0101_0101_0101,
        }
    }

    /// For up to four planes: the values are the upper halves of 16 numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn of_16(self, words: &[u64; 8], table: __m512i) -> Lanes {
        let planes = self.planes(words);
        Self::join(
            _mm512_permutexvar_epi8(indices::<2>(planes), table),
            _mm512_permutexvar_epi8(indices::<3>(planes), table),
        )
    }

    /// For five planes: the values are the upper halves of 32 numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn of_32(self, words: &[u64; 8], tables: [__m512i; 2]) -> Lanes {
        let planes = self.planes(words);
        let [first, second] = tables;
        Self::join(
            _mm512_permutex2var_epi8(first, indices::<2>(planes), second),
            _mm512_permutex2var_epi8(first, indices::<3>(planes), second),
        )
    }

    /// For six planes: the values are 64 patterns.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn of_64(self, words: &[u64; 8], table: Lanes) -> Lanes {
        let planes = self.planes(words);
        Self::join(
            _mm512_permutex2var_epi8(table.low, indices::<0>(planes), table.high),
            _mm512_permutex2var_epi8(table.low, indices::<1>(planes), table.high),
        )
    }

    /// Matrices of eight lanes each, whose rows are the planes from the bit that they have in an index.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn planes(self, words: &[u64; 8]) -> __m512i {
        _mm512_maskz_permutexvar_epi8(self.present, self.order, load_words(words))
    }

    /// Low and high bytes to patterns.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    fn join(low: __m512i, high: __m512i) -> Lanes {
        Lanes {
            low: _mm512_unpacklo_epi8(low, high),
            high: _mm512_unpackhi_epi8(low, high),
        }
    }
}

/// The indices of the lanes whose bits are in `planes`, and `BYTE` in the bits below them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn indices<const BYTE: i32>(planes: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<BYTE>(
        _mm512_set1_epi64(0x8040_2010_0804_0201u64.cast_signed()),
        planes,
    )
}

/// The row of the first plane in a matrix whose row `i` is bit `7 - i` of an index: the codes are indices of numbers of
/// four bytes, those of six planes of patterns of two.
const LOOKUP_SHIFT: [usize; 7] = [6, 5, 4, 3, 2, 1, 1];

/// Byte `8 * i + j` is row `j` of the matrix of lanes `8 * lanes ..`, where the even `i` are the lanes below 32, since bytes
/// are interleaved within 16.
static LOOKUP_ORDER: [[u8; 64]; 7] = {
    let mut all = [[0; 64]; 7];
    let mut width = 0;
    while width < 7 {
        let mut i = 0;
        while i < 64 {
            let lanes = i / 8 / 2 + i / 8 % 2 * 4;
            let row = i % 8;
            let plane = (row + 8 - LOOKUP_SHIFT[width]) % 8;
            all[width][i] = (plane * 8 + lanes) as u8;
            i += 1;
        }
        width += 1;
    }
    all
};
