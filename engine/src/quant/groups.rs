//! The quantised blocks taken apart into codes, scales and offsets.
//!
//! The layouts are those of the GGML block types. A group's `scale` and `offset` are exact products of the stored numbers.

use half::f16;

use super::TensorType;

/// A run of codes with its scale and offset: a weight is `scale * code + offset`.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// 16 or 32 codes.
    pub(crate) codes: &'a [i8],
    /// What a code is worth.
    pub(crate) scale: f32,
    /// What is added; zero where the codes are signed.
    pub(crate) offset: f32,
}

impl TensorType {
    /// Visits the groups of a row in order. Plain floats have none.
    pub(crate) fn groups(self, bytes: &[u8], mut visit: impl FnMut(Group<'_>)) {
        for block in bytes.chunks_exact(self.block_bytes()) {
            match self {
                Self::F32 | Self::F16 | Self::Bf16 => {}
                Self::Q4_0 => q4_0(block, &mut visit),
                Self::Q4_1 => q4_1(block, &mut visit),
                Self::Q5_0 => q5_0(block, &mut visit),
                Self::Q5_1 => q5_1(block, &mut visit),
                Self::Q8_0 => q8_0(block, &mut visit),
                Self::Q4K => q4_k(block, &mut visit),
                Self::Q5K => q5_k(block, &mut visit),
                Self::Q6K => q6_k(block, &mut visit),
            }
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The codes of 16 bytes that hold codes 0 to 15 in their lower and codes 16 to 31 in their upper halves.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut codes = [0; 32];
    let (low, high) = codes.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
    codes
}

/// Adds bit `i` of `bits` to code `i`, as its fifth bit.
fn with_fifth_bits(mut codes: [u8; 32], bits: &[u8]) -> [u8; 32] {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (bits[i / 8] >> (i % 8) & 1) << 4;
    }
    codes
}

/// Codes below 128 as signed numbers, moved down by `center`.
fn signed<const N: usize>(codes: [u8; N], center: i8) -> [i8; N] {
    codes.map(|code| code.cast_signed() - center)
}

fn q4_0(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let scale = half_at(block, 0);
    let codes = &signed(nibbles(&block[2..18]), 0);
    // The codes stay unsigned, for the packed form's sake: the center becomes the offset, which is exact.
    visit(Group {
        codes,
        scale,
        offset: -8.0 * scale,
    });
}

fn q4_1(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let codes = &signed(nibbles(&block[4..20]), 0);
    visit(Group {
        codes,
        scale: half_at(block, 0),
        offset: half_at(block, 2),
    });
}

fn q5_0(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let codes = with_fifth_bits(nibbles(&block[6..22]), &block[2..6]);
    visit(Group {
        codes: &signed(codes, 16),
        scale: half_at(block, 0),
        offset: 0.0,
    });
}

fn q5_1(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let codes = with_fifth_bits(nibbles(&block[8..24]), &block[4..8]);
    visit(Group {
        codes: &signed(codes, 0),
        scale: half_at(block, 0),
        offset: half_at(block, 2),
    });
}

fn q8_0(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let mut codes = [0; 32];
    for (code, byte) in codes.iter_mut().zip(&block[2..34]) {
        *code = byte.cast_signed();
    }
    visit(Group {
        codes: &codes,
        scale: half_at(block, 0),
        offset: 0.0,
    });
}

/// The six-bit scale and offset of group `i` of a K block: the first four groups' lie whole in bytes 0 to 7; of the last
/// four, the lower four bits lie in bytes 8 to 11 and the upper two at the top of bytes 0 to 7.
fn scale_and_offset(packed: &[u8], i: usize) -> (f32, f32) {
    let (scale, offset) = if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        (
            packed[i + 4] & 15 | packed[i - 4] >> 6 << 4,
            packed[i + 4] >> 4 | packed[i] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(offset))
}

/// Group `i` of a K block's 4-bit codes: each 32 bytes hold two groups, one in the lower and one in the upper halves.
fn k_nibbles(bytes: &[u8], i: usize) -> [u8; 32] {
    let mut codes = [0; 32];
    for (code, byte) in codes.iter_mut().zip(&bytes[i / 2 * 32..]) {
        *code = byte >> (i % 2 * 4) & 15;
    }
    codes
}

fn q4_k(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    for i in 0..8 {
        let (s, o) = scale_and_offset(&block[4..16], i);
        let codes = &signed(k_nibbles(&block[16..144], i), 0);
        visit(Group {
            codes,
            scale: scale * s,
            offset: -(offset * o),
        });
    }
}

fn q5_k(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    for i in 0..8 {
        let (s, o) = scale_and_offset(&block[4..16], i);
        let mut codes = k_nibbles(&block[48..176], i);
        for (code, bits) in codes.iter_mut().zip(&block[16..48]) {
            *code |= (bits >> i & 1) << 4;
        }
        visit(Group {
            codes: &signed(codes, 0),
            scale: scale * s,
            offset: -(offset * o),
        });
    }
}

fn q6_k(block: &[u8], visit: &mut impl FnMut(Group<'_>)) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (i, &s) in scales.iter().enumerate() {
        // Group i: half of 128 codes, quarter of 32 in it, and which 16 of those.
        let (half, quarter, first) = (i / 8, i % 8 / 2, i % 2 * 16);
        let low = &low[half * 64 + quarter % 2 * 32 + first..];
        let high = &high[half * 32 + first..];
        let mut codes = [0; 16];
        for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
            *code = low >> (quarter / 2 * 4) & 15 | (high >> (quarter * 2) & 3) << 4;
        }
        let scale = scale * f32::from(s.cast_signed());
        visit(Group {
            codes: &signed(codes, 32),
            scale,
            offset: 0.0,
        });
    }
}
