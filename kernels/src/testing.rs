//! A small seeded generator for tests.

/// Xorshift with a multiplied output: any seed gives the same values on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// A number below `limit`, which is at most 2^16.
    pub(crate) fn below(&mut self, limit: u16) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()]) % limit
    }
}
