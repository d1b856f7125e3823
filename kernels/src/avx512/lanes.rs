//! Sixty-four lanes of a row.

use core::arch::x86_64::*;

use super::lookup::indices;
use crate::group::Params;

/// 64 BF16 patterns or numbers of 16 bits: lanes 0 to 31 and 32 to 63.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub low: __m512i,
    pub high: __m512i,
}

/// The same lanes as 32-bit numbers: of each of the two halves the even lanes, then the odd ones.
#[derive(Clone, Copy)]
pub(super) struct Quarters<T>(pub [T; 4]);

/// The least and greatest ordinals seen, lane by lane; the greatest as complements, so that both are minima.
#[derive(Clone, Copy)]
pub(super) struct Extremes {
    least: __m512i,
    greatest: __m512i,
}

/// The first of `count` lanes; `count` is at least 1.
pub(super) fn first_lanes(count: usize) -> u64 {
    u64::MAX >> 64usize.saturating_sub(count)
}

impl Lanes {
    /// The up to 64 elements of a run; lanes past its end repeat its first element, so that they change no minimum and
    /// no maximum and have a code.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn load(run: &[u16]) -> Self {
        let pointer = run.as_ptr().cast::<i16>();
        if run.len() >= 64 {
            return Self {
                // SAFETY: the run has at least 64 elements.
                low: unsafe { _mm512_loadu_epi16(pointer) },
                // SAFETY: as above; `wrapping_add` stays inside.
                high: unsafe { _mm512_loadu_epi16(pointer.wrapping_add(32)) },
            };
        }
        let present = first_lanes(run.len());
        let fill = _mm512_set1_epi16(run[0].cast_signed());
        let (first, second) = (present as u32, (present >> 32) as u32);
        Self {
            // SAFETY: only lanes that the run has are accessed.
            low: unsafe { _mm512_mask_loadu_epi16(fill, first, pointer) },
            // SAFETY: only lanes that the run has are accessed.
            high: unsafe { _mm512_mask_loadu_epi16(fill, second, pointer.wrapping_add(32)) },
        }
    }

    /// Writes as many lanes as the run has elements, up to 64.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn store(self, run: &mut [u16]) {
        let pointer = run.as_mut_ptr().cast::<i16>();
        if run.len() >= 64 {
            // SAFETY: the run has at least 64 elements.
            unsafe { _mm512_storeu_epi16(pointer, self.low) };
            // SAFETY: as above; `wrapping_add` stays inside.
            unsafe { _mm512_storeu_epi16(pointer.wrapping_add(32), self.high) };
        } else {
            let present = first_lanes(run.len());
            // SAFETY: only lanes that the run has are accessed.
            unsafe { _mm512_mask_storeu_epi16(pointer, present as u32, self.low) };
            let second = pointer.wrapping_add(32);
            // SAFETY: only lanes that the run has are accessed.
            unsafe { _mm512_mask_storeu_epi16(second, (present >> 32) as u32, self.high) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn map(self, mut f: impl FnMut(__m512i) -> __m512i) -> Self {
        Self {
            low: f(self.low),
            high: f(self.high),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn zip(self, other: Self, mut f: impl FnMut(__m512i, __m512i) -> __m512i) -> Self {
        Self {
            low: f(self.low, other.low),
            high: f(self.high, other.high),
        }
    }

    /// The BF16 patterns as f32.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn quarters(self) -> Quarters<__m512> {
        let even = |v| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(v));
        let upper = _mm512_set1_epi32(0xffff_0000u32.cast_signed());
        let odd = |v| _mm512_castsi512_ps(_mm512_and_si512(v, upper));
        Quarters([
            even(self.low),
            odd(self.low),
            even(self.high),
            odd(self.high),
        ])
    }

    /// [`crate::bf16::ordinal`] of each lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn ordinals(self) -> Self {
        let sign = _mm512_set1_epi16(i16::MIN);
        // v ^ (negative | sign)
        self.map(|v| _mm512_ternarylogic_epi32::<0x1e>(v, _mm512_srai_epi16::<15>(v), sign))
    }

    /// [`crate::bf16::from_ordinal`] of each lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn patterns(self) -> Self {
        let sign = _mm512_set1_epi16(i16::MIN);
        // v ^ (!upper half | sign)
        self.map(|v| _mm512_ternarylogic_epi32::<0x4b>(v, _mm512_srai_epi16::<15>(v), sign))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn extremes(self) -> Extremes {
        let greatest = _mm512_max_epu16(self.low, self.high);
        Extremes {
            least: _mm512_min_epu16(self.low, self.high),
            greatest: _mm512_xor_si512(greatest, _mm512_set1_epi32(-1)),
        }
    }

    /// Zeros in all lanes but these.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn only(self, lanes: u64) -> Self {
        Self {
            low: _mm512_maskz_mov_epi16(lanes as u32, self.low),
            high: _mm512_maskz_mov_epi16((lanes >> 32) as u32, self.high),
        }
    }

    /// The lanes in which `self & bit` isn't zero.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn test(self, bit: __m512i) -> u64 {
        join(
            _mm512_test_epi16_mask(self.low, bit),
            _mm512_test_epi16_mask(self.high, bit),
        )
    }

    /// The sixteen planes, most significant first.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn store_planes(self, words: &mut [[u64; 8]; 2]) {
        let low = _mm512_permutex2var_epi8(self.low, bytes(&REVERSED_EVEN), self.high);
        let odd = _mm512_add_epi8(bytes(&REVERSED_EVEN), _mm512_set1_epi8(1));
        let high = _mm512_permutex2var_epi8(self.low, odd, self.high);
        store_words(planes(high), &mut words[0]);
        store_words(planes(low), &mut words[1]);
    }

    /// The inverse of [`Lanes::store_planes`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn load_planes(words: &[[u64; 8]; 2]) -> Self {
        let (high, low) = (load_planes(&words[0]), load_planes(&words[1]));
        let first = bytes(&INTERLEAVED);
        let second = _mm512_add_epi8(first, _mm512_set1_epi8(32));
        Self {
            low: _mm512_permutex2var_epi8(low, first, high),
            high: _mm512_permutex2var_epi8(low, second, high),
        }
    }

    /// The lanes that are at least those of `other`, unsigned.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn at_least(self, other: Self) -> u64 {
        join(
            _mm512_cmpge_epu16_mask(self.low, other.low),
            _mm512_cmpge_epu16_mask(self.high, other.high),
        )
    }
}

/// The masks of two halves as one.
pub(super) fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Extremes {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            least: _mm512_min_epu16(self.least, other.least),
            greatest: _mm512_min_epu16(self.greatest, other.greatest),
        }
    }

    /// The bit patterns with the least and the greatest ordinal.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn reduce(self) -> (u16, u16) {
        let near = _mm512_shuffle_i64x2::<0b01_00_01_00>(self.least, self.greatest);
        let far = _mm512_shuffle_i64x2::<0b11_10_11_10>(self.least, self.greatest);
        // Now 16 lanes of the least, then 16 of the greatest.
        let both = _mm512_min_epu16(near, far);
        let both = _mm512_min_epu16(both, _mm512_shuffle_i64x2::<0b10_11_00_01>(both, both));
        let least = _mm_minpos_epu16(_mm512_castsi512_si128(both));
        let greatest = _mm_minpos_epu16(_mm512_extracti32x4_epi32::<2>(both));
        let least = _mm_cvtsi128_si32(least).cast_unsigned() as u16;
        let greatest = !(_mm_cvtsi128_si32(greatest).cast_unsigned() as u16);
        (
            crate::bf16::from_ordinal(least),
            crate::bf16::from_ordinal(greatest),
        )
    }
}

impl<T: Copy> Quarters<T> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn map<U: Copy>(self, f: impl FnMut(T) -> U) -> Quarters<U> {
        Quarters(self.0.map(f))
    }
}

impl Quarters<__m512i> {
    /// 64 bytes as 32-bit numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn of_bytes(bytes: __m512i) -> Self {
        Self::of_bytes_over(_mm512_setzero_si512(), bytes)
    }

    /// 64 bytes, each as the lowest of four bytes whose others are those of `over`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn of_bytes_over(over: __m512i, bytes: __m512i) -> Self {
        let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        let pick = |offset| {
            let lanes = _mm512_add_epi32(even, _mm512_set1_epi32(offset));
            _mm512_mask_permutexvar_epi8(over, 0x1111_1111_1111_1111, lanes, bytes)
        };
        Self([pick(0), pick(1), pick(32), pick(33)])
    }

    /// The upper 16 bits of each number.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
    pub(super) fn high_halves(self) -> Lanes {
        let [a, b, c, d] = self.0;
        let half =
            |even, odd| _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even), odd);
        Lanes {
            low: half(a, b),
            high: half(c, d),
        }
    }
}

/// Rounds to the nearest BF16, ties to even, which is left in the upper half of each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn nearest(x: __m512) -> __m512i {
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd)
}

/// Writes the planes of 64 codes (the low bytes of the quarters), of which the first `count` are present.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn store_planes(codes: &Quarters<__m512i>, count: usize, words: &mut [u64; 8]) {
    let [a, b, c, d] = codes.0;
    let half = |even, odd| _mm512_mask_blend_epi16(0xaaaa_aaaa, even, _mm512_slli_epi32::<16>(odd));
    let codes = _mm512_permutex2var_epi8(half(a, b), bytes(&REVERSED_EVEN), half(c, d));
    let present = first_lanes(count).cast_signed();
    store_words(
        _mm512_and_si512(planes(codes), _mm512_set1_epi64(present)),
        words,
    );
}

/// The planes of 64 bytes, of which each eight come backwards.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
fn planes(reversed: __m512i) -> __m512i {
    // The matrix is eight lanes; bit `7 - plane` of each is collected in byte `plane`.
    let select = _mm512_set1_epi64(0x0102_0408_1020_4080);
    let planes = _mm512_gf2p8affine_epi64_epi8::<0>(select, reversed);
    _mm512_permutexvar_epi8(bytes(&TRANSPOSED), planes)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
fn store_words(words: __m512i, out: &mut [u64; 8]) {
    // SAFETY: eight words are 64 bytes.
    unsafe { _mm512_storeu_epi64(out.as_mut_ptr().cast(), words) };
}

/// The 64 codes of eight planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn load_planes(words: &[u64; 8]) -> __m512i {
    indices::<0>(_mm512_permutexvar_epi8(
        bytes(&TRANSPOSED),
        load_words(words),
    ))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn load_words(words: &[u64; 8]) -> __m512i {
    // SAFETY: eight words are 64 bytes.
    unsafe { _mm512_loadu_epi64(words.as_ptr().cast()) }
}

/// Byte `8 * i + j` is `8 * j + i`.
const TRANSPOSED: [u8; 64] = {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = (i % 8 * 8 + i / 8) as u8;
        i += 1;
    }
    bytes
};
/// The bytes of one vector in the even places, those of a second in the odd ones.
const INTERLEAVED: [u8; 64] = {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = (i / 2 + i % 2 * 64) as u8;
        i += 1;
    }
    bytes
};
/// The even bytes of two vectors, each eight of them backwards, as a matrix of GFNI wants its rows.
const REVERSED_EVEN: [u8; 64] = {
    let mut bytes = [0; 64];
    let mut i = 0;
    while i < 64 {
        bytes[i] = ((i / 8 * 8 + 7 - i % 8) * 2) as u8;
        i += 1;
    }
    bytes
};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn bytes(values: &[u8; 64]) -> __m512i {
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_epi8(values.as_ptr().cast()) }
}

/// Asks for the 64 elements at an address, which needn't be valid.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn prefetch(pointer: *const u16) {
    _mm_prefetch::<_MM_HINT_T0>(pointer.cast());
    _mm_prefetch::<_MM_HINT_T0>(pointer.wrapping_add(32).cast());
}

/// Sixteen 16-bit patterns, zero-extended.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn load_patterns(patterns: &[u16; 16]) -> __m512i {
    // SAFETY: the array has 16 elements.
    let patterns = unsafe { _mm256_loadu_epi16(patterns.as_ptr().cast()) };
    _mm512_cvtepu16_epi32(patterns)
}

/// Writes up to sixteen groups' parameters.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn store_params(packed: __m512i, params: &mut [Params]) {
    let mut all = [0u32; 16];
    // SAFETY: the array has 16 elements.
    unsafe { _mm512_storeu_epi32(all.as_mut_ptr().cast(), packed) };
    for (params, packed) in params.iter_mut().zip(all) {
        *params = Params(packed);
    }
}

/// Sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn load_floats(values: &[f32; 16]) -> __m512 {
    // SAFETY: the array has 16 elements.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

/// Writes sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,gfni,bmi2,popcnt")]
pub(super) fn store_floats(values: __m512, out: &mut [f32]) {
    let out = &mut out[..16];
    // SAFETY: the slice has 16 elements.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), values) };
}
