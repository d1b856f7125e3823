//! Choices that a seed makes. Not for secrets.

/// A sequence of numbers from a seed and a name (SplitMix64, after Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(super) struct Seeded(u64);

impl Seeded {
    /// The sequence of this seed and name: each name has its own, so that a new source changes no other one.
    pub(super) fn new(seed: u64, name: &str) -> Self {
        let mut seeded = Self(seed);
        for byte in name.bytes() {
            seeded.0 ^= u64::from(byte);
            seeded.0 = seeded.next();
        }
        seeded
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// A number from `low` up to and including `high`.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// One of the words; empty where there is none.
    pub(super) fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words.get(self.below(words.len())).copied().unwrap_or("")
    }
}
