//! The tail's bit sections: bits in ascending order within bytes, bytes within 64-bit words.

/// Writes bits into words that are large enough for them.
#[derive(Debug)]
pub(crate) struct BitWriter<'a> {
    words: &'a mut [u64],
    full: usize,
    partial: u64,
    used: u32,
}

impl<'a> BitWriter<'a> {
    /// A writer of up to `words.len() * 64 - 1` bits.
    pub(crate) fn new(words: &'a mut [u64]) -> Self {
        Self {
            words,
            full: 0,
            partial: 0,
            used: 0,
        }
    }

    /// Appends the low `count` bits (0 to 64) of `bits`, which has no others set.
    ///
    /// # Panics
    /// Where the words are full.
    #[inline(always)]
    pub(crate) fn put(&mut self, bits: u64, count: u32) {
        // Without a branch, which would be taken at random: the word is stored whether it is full or not.
        let joined = self.partial | (bits << self.used);
        // What doesn't fit: nothing where the word is filled exactly.
        let beyond = (bits >> 1) >> (63 - self.used);
        let used = self.used + count;
        self.words[self.full] = joined;
        self.full += (used / 64) as usize;
        self.partial = if used >= 64 { beyond } else { joined };
        self.used = used % 64;
    }

    /// Puts the unfinished word down; returns how many bytes there are, the last one padded with zeros.
    pub(crate) fn finish(self) -> usize {
        self.words[self.full] = self.partial;
        self.full * 8 + self.used.div_ceil(8) as usize
    }
}

/// Reads bits; past the end they are zeros, which [`BitReader::ended_at`] tells.
#[derive(Debug)]
pub(crate) struct BitReader<'a> {
    words: &'a [u64],
    position: usize,
}

impl<'a> BitReader<'a> {
    /// A reader of the bits of `words`.
    pub(crate) fn new(words: &'a [u64]) -> Self {
        Self { words, position: 0 }
    }

    /// The next 64 bits, of which only `count` (0 to 64) are consumed: the others are the caller's to ignore.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: u32) -> u64 {
        let (word, shift) = (self.position / 64, self.position % 64);
        self.position += count as usize;
        let at = |i: usize| self.words.get(i).copied().unwrap_or(0);
        (at(word) >> shift) | ((at(word + 1) << 1) << (63 - shift))
    }

    /// Whether the bits consumed end in the last of `bytes` bytes.
    pub(crate) fn ended_at(&self, bytes: usize) -> bool {
        self.position.div_ceil(8) == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn mask(count: u32) -> u64 {
        u64::MAX.checked_shr(64 - count).unwrap_or(0)
    }

    #[test]
    fn bits_come_back_as_they_were_put() {
        let mut random = Random::new(4);
        for _ in 0..200 {
            let mut words = [0; 100];
            let puts: Vec<(u64, u32)> = (0..random.below(90))
                .map(|_| {
                    let counts = [0, 1, 5, 63, 64, u32::from(random.below(65))];
                    let count = counts[usize::from(random.below(6))];
                    (random.next() & mask(count), count)
                })
                .collect();
            let mut writer = BitWriter::new(&mut words);
            for &(bits, count) in &puts {
                writer.put(bits, count);
            }
            let bytes = writer.finish();
            let mut reader = BitReader::new(&words);
            for &(bits, count) in &puts {
                assert_eq!(reader.take(count) & mask(count), bits);
            }
            assert!(reader.ended_at(bytes) && !reader.ended_at(bytes + 1));
        }
    }
}
