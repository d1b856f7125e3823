//! Seeded noise for tests.

use half::{bf16, f16};

use crate::quant::TensorType;

/// A generator of arbitrary but always the same numbers (SplitMix64).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from -1 to 1.
    pub(crate) fn float(&mut self) -> f32 {
        let bits = u16::try_from(self.next() >> 48).unwrap();
        f32::from(bits) / 32_768.0 - 1.0
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn floats<const N: usize>(&mut self) -> [f32; N] {
        std::array::from_fn(|_| self.float())
    }

    /// Whole blocks of a storage type, whose numbers are of the size that a model's weights have, around 0.1.
    pub(crate) fn tensor(&mut self, kind: TensorType, shape: &[usize]) -> Vec<u8> {
        let count = kind.bytes_for(shape).unwrap() / kind.block_bytes();
        // Where a block's 16-bit floats are, and by what its codes multiply them at most.
        let (halves, most): (&[usize], f32) = match kind {
            TensorType::F32 => {
                return (0..count)
                    .flat_map(|_| (self.float() / 8.0).to_le_bytes())
                    .collect();
            }
            TensorType::Bf16 => {
                let bits = |float: f32| bf16::from_f32(float / 8.0).to_le_bytes();
                return (0..count).flat_map(|_| bits(self.float())).collect();
            }
            TensorType::F16 => (&[0], 1.0),
            TensorType::Q4_0 => (&[0], 8.0),
            TensorType::Q4_1 => (&[0, 2], 15.0),
            TensorType::Q5_0 => (&[0], 16.0),
            TensorType::Q5_1 => (&[0, 2], 31.0),
            TensorType::Q8_0 => (&[0], 127.0),
            TensorType::Q4K => (&[0, 2], 15.0 * 63.0),
            TensorType::Q5K => (&[0, 2], 31.0 * 63.0),
            TensorType::Q6K => (&[208], 32.0 * 127.0),
        };
        let mut bytes: Vec<u8> = (0..count * kind.block_bytes())
            .map(|_| self.next().to_le_bytes()[0])
            .collect();
        for block in bytes.chunks_exact_mut(kind.block_bytes()) {
            for &at in halves {
                block[at..at + 2]
                    .copy_from_slice(&f16::from_f32(self.float() / 8.0 / most).to_le_bytes());
            }
        }
        bytes
    }
}
