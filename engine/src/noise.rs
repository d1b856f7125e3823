//! Seeded noise for tests.

use half::f16;

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

    /// Bytes in which the 16-bit floats at `halves` of every block of `block` bytes are small finite numbers.
    pub(crate) fn blocks(&mut self, count: usize, block: usize, halves: &[usize]) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count * block)
            .map(|_| self.next().to_le_bytes()[0])
            .collect();
        for block in bytes.chunks_exact_mut(block) {
            for &at in halves {
                block[at..at + 2]
                    .copy_from_slice(&f16::from_f32(self.float() / 16.0).to_le_bytes());
            }
        }
        bytes
    }

    /// Whole blocks of a storage type, all of whose numbers are finite and small.
    pub(crate) fn tensor(&mut self, kind: crate::TensorType, shape: &[usize]) -> Vec<u8> {
        use crate::TensorType::{Bf16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
        let count = kind.bytes_for(shape).unwrap() / kind.block_bytes();
        let halves: &[usize] = match kind {
            F32 => {
                return (0..count)
                    .flat_map(|_| self.float().to_le_bytes())
                    .collect();
            }
            Bf16 => {
                let bits = |float: f32| half::bf16::from_f32(float).to_le_bytes();
                return (0..count).flat_map(|_| bits(self.float())).collect();
            }
            F16 | Q4_0 | Q5_0 | Q8_0 => &[0],
            Q4_1 | Q5_1 | Q4K | Q5K => &[0, 2],
            Q6K => &[208],
        };
        self.blocks(count, kind.block_bytes(), halves)
    }
}
