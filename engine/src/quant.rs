//! The storage types of weights, and what their bytes mean.
//!
//! Every quantised type comes down to one form: a run of small integers (a [`Group`]) with a scale and an offset, of which a
//! weight is `scale * code + offset`. The packed matrices ([`crate::weights`]) keep that form, so that a weight read by any
//! kernel is bit for bit the `f32` that [`TensorType::decode`] gives here. Types without groups hold plain floats.

mod groups;

#[cfg(test)]
mod tests;

use std::fmt;

use half::{bf16, f16};

/// How the numbers of a tensor are stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 32-bit floats cut to their upper half.
    Bf16,
    /// 4-bit codes around zero, a scale per 32.
    Q4_0,
    /// 4-bit codes, a scale and an offset per 32.
    Q4_1,
    /// 5-bit codes around zero, a scale per 32.
    Q5_0,
    /// 5-bit codes, a scale and an offset per 32.
    Q5_1,
    /// 8-bit codes around zero, a scale per 32.
    Q8_0,
    /// 4-bit codes, a scale and an offset per 32, themselves quantised over 256.
    Q4K,
    /// 5-bit codes, a scale and an offset per 32, themselves quantised over 256.
    Q5K,
    /// 6-bit codes around zero, a scale per 16, itself quantised over 256.
    Q6K,
}

impl TensorType {
    /// The types that can be read, for messages.
    pub(crate) const NAMES: &'static str =
        "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K";

    /// The type of a number in a file; none if it cannot be read here.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// How many numbers are stored together; a row's length is a multiple of it.
    #[must_use]
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// The bytes of one block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// How many codes share a scale; none for plain floats.
    pub(crate) fn group(self) -> Option<usize> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => None,
            Self::Q6K => Some(16),
            _ => Some(32),
        }
    }

    /// The bytes of a tensor of a shape; none if a row does not consist of whole blocks or the size overflows.
    #[must_use]
    pub fn bytes_for(self, shape: &[usize]) -> Option<usize> {
        let (row, rest) = shape.split_first()?;
        if row % self.block() != 0 {
            return None;
        }
        rest.iter()
            .try_fold(row / self.block(), |blocks, &length| {
                blocks.checked_mul(length)
            })?
            .checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks into floats.
    ///
    /// `bytes` holds `out.len() / block()` blocks; what is missing on either side is left alone.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => each(bytes, out, f32::from_le_bytes),
            Self::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            _ => {
                let mut out = out.iter_mut();
                self.groups(bytes, |group| {
                    for (&code, out) in group.codes.iter().zip(&mut out) {
                        // Both roundings are exact or, for Q6_K, one of them is: a fused multiply-add gives the same bits.
                        *out = group.scale * f32::from(code) + group.offset;
                    }
                });
            }
        }
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (bytes, out) in bytes.as_chunks::<N>().0.iter().zip(out) {
        *out = decode(*bytes);
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        })
    }
}
