//! The numbers of a stream's messages: in which order they are read, whichever rail they came by.

/// A message's number, counted from 0 and modulo 4096. At any time all numbers that matter lie within half of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number(u16);

const COUNT: u16 = 1 << 12;

impl Number {
    /// The lower 12 bits of it.
    pub(crate) const fn of(bits: u32) -> Self {
        let [low, high, ..] = bits.to_le_bytes();
        Self(u16::from_le_bytes([low, high]) % COUNT)
    }

    pub(crate) const fn get(self) -> u16 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self((self.0 + 1) % COUNT)
    }

    /// How far it is behind `other`, modulo 4096.
    pub(crate) const fn behind(self, other: Self) -> u16 {
        (other.0 + COUNT - self.0) % COUNT
    }

    /// Whether it comes before `other`.
    pub(crate) const fn is_before(self, other: Self) -> bool {
        let behind = self.behind(other);
        behind > 0 && behind < COUNT / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round_and_keep_their_order() {
        let last = Number::of(u32::from(COUNT) - 1);
        assert_eq!(last.next(), Number::default());
        assert!(last.is_before(last.next()) && !last.next().is_before(last));
        assert!(!last.is_before(last));
        assert!(Number::of(0).is_before(Number::of(2047)));
        assert_eq!(Number::of(4096 + 5), Number::of(5));
    }
}
