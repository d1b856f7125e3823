//! The checksum of a segment: at memory speed, and in any order.
//!
//! A sum of independent terms, so that SIMD lanes, threads and GPU warps can add theirs as they come; a CRC would chain
//! every word to the one before. It notices damage and mix-ups; it is no authentication.

/// 2^64 divided by the golden ratio, odd: spreads the position over all bits.
const POSITION: u64 = 0x9e37_79b9_7f4a_7c15;

/// The checksum of a whole segment.
///
/// With the segment zero-padded to 64-bit little-endian words `w_i` and `x_i = w_i ^ ((i + 1) * POSITION)`, it is the
/// sum of `low32(x_i) * high32(x_i) + w_i + rotate_left(w_i, 32)` modulo 2^64, mixed with the length in bytes.
/// A single flipped bit always changes the sum: counted in units of that bit within its half, the product changes by the
/// other half, which is below 2^32, and the rest by `2^32 + 1`, so that they can't cancel.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(0, bytes);
    sum.finish(bytes.len() as u64)
}

/// A checksum under way, for a segment that arrives in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    sum: u64,
}

impl Checksum {
    /// Adds the bytes at `offset` of the segment; in any order, each once. `offset` is a multiple of eight, and only the
    /// segment's last piece may have a length that isn't.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(8), "pieces start at whole words");
        let position = (offset / 8).wrapping_mul(POSITION);
        self.sum = self.sum.wrapping_add(sum_words(position, bytes));
    }

    /// What was added up elsewhere: on a GPU, as the words passed.
    pub const fn from_sum(sum: u64) -> Self {
        Self { sum }
    }

    /// The checksum of a segment of `len` bytes, all of which were added.
    pub fn finish(self, len: u64) -> u64 {
        let mut h = self.sum ^ len.wrapping_mul(POSITION);
        h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^ (h >> 32)
    }
}

/// The sum of the terms of `bytes`, where `position` is that of the word before. Plain code: the compiler makes vectors
/// of it that keep up with memory.
fn sum_words(mut position: u64, bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        position = position.wrapping_add(POSITION);
        sum = sum.wrapping_add(term(position, u64::from_le_bytes(word)));
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        position = position.wrapping_add(POSITION);
        sum = sum.wrapping_add(term(position, u64::from_le_bytes(word)));
    }
    sum
}

#[inline(always)]
fn term(position: u64, word: u64) -> u64 {
    let x = word ^ position;
    (x & 0xffff_ffff)
        .wrapping_mul(x >> 32)
        .wrapping_add(word)
        .wrapping_add(word.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut random = Random::new(1);
        for len in [1, 7, 8, 63, 200] {
            for fill in [0u8, 0xff, 0x55] {
                let mut bytes: Vec<u8> = (0..len).map(|_| random.byte() & fill).collect();
                let sum = checksum(&bytes);
                for bit in 0..len * 8 {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    assert_ne!(checksum(&bytes), sum, "bit {bit} of {len}");
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    #[test]
    fn swapped_words_truncation_and_runs_of_zeros_are_noticed() {
        let mut random = Random::new(2);
        let bytes: Vec<u8> = (0..512).map(|_| random.byte()).collect();
        let sum = checksum(&bytes);
        for i in 0..64 {
            for j in 0..i {
                let mut swapped = bytes.clone();
                for k in 0..8 {
                    swapped.swap(i * 8 + k, j * 8 + k);
                }
                assert_ne!(checksum(&swapped), sum);
            }
            assert_ne!(checksum(&bytes[..i * 8]), sum);
            let mut zeroed = bytes.clone();
            zeroed[i * 8..].fill(0);
            assert_ne!(checksum(&zeroed), sum);
        }
        let zeros: Vec<u64> = (0..100).map(|len| checksum(&vec![0; len])).collect();
        assert!(
            zeros
                .iter()
                .enumerate()
                .all(|(i, a)| !zeros[..i].contains(a))
        );
    }

    #[test]
    fn pieces_may_come_in_any_order() {
        let mut random = Random::new(3);
        let bytes: Vec<u8> = (0..1003).map(|_| random.byte()).collect();
        let mut sum = Checksum::default();
        sum.add(800, &bytes[800..]);
        sum.add(0, &bytes[..264]);
        sum.add(264, &bytes[264..800]);
        assert_eq!(sum.finish(1003), checksum(&bytes));
    }

    #[test]
    fn the_checksum_is_the_documented_one() {
        assert_eq!(checksum(b""), 0);
        assert_eq!(checksum(b"lynx"), by_definition(b"lynx"));
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(checksum(&bytes), by_definition(&bytes));
    }

    /// The definition, word by word.
    fn by_definition(bytes: &[u8]) -> u64 {
        let mut sum = Checksum::default();
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let w = u64::from_le_bytes(word);
            let x = w ^ (i as u64 + 1).wrapping_mul(POSITION);
            let product = (x % (1 << 32)) * (x >> 32);
            sum.sum = sum
                .sum
                .wrapping_add(product)
                .wrapping_add(w)
                .wrapping_add(w.rotate_left(32));
        }
        sum.finish(bytes.len() as u64)
    }
}
