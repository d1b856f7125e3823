//! A mean number of bits per element.

use core::fmt;
use core::str::FromStr;

use crate::{ParseError, parse};

/// A mean code width in eighths of a bit, from 0 to 8 bits. Eighths, because every head dimension in use is a multiple
/// of eight, so such a width is a whole number of code words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Width(u8);

impl Width {
    /// All eight bits.
    pub const FULL: Self = Self(64);

    /// `eighths / 8` bits; `None` above 8 bits.
    pub const fn from_eighths(eighths: u8) -> Option<Self> {
        if eighths <= 64 {
            Some(Self(eighths))
        } else {
            None
        }
    }

    /// `bits` whole bits; `None` above 8.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= 8 {
            Some(Self(bits * 8))
        } else {
            None
        }
    }

    /// Eighths of a bit.
    pub const fn eighths(self) -> u8 {
        self.0
    }

    /// How many of a group row's `lanes x 8` code words this width covers: `lanes * bits`.
    /// `lanes` is a multiple of eight.
    pub const fn words(self, lanes: usize) -> usize {
        lanes * self.0 as usize / 8
    }

    /// The width in bits.
    pub fn bits(self) -> f64 {
        f64::from(self.0) / 8.0
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits().fmt(f)
    }
}

/// `4`, `3.5` or `4.125`: a multiple of an eighth between 0 and 8.
impl FromStr for Width {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        const WANTED: &str = "a width in bits between 0 and 8, in steps of 0.125";
        let (bits, unit) = parse::number_and_unit(text, WANTED)?;
        let eighths = bits * 8.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in 0..=64, checked here"
        )]
        let whole = if (0.0..=64.0).contains(&eighths) {
            eighths as u8
        } else {
            return Err(ParseError::new(WANTED));
        };
        if unit.is_empty() && f64::from(whole).to_bits() == eighths.to_bits() {
            Ok(Self(whole))
        } else {
            Err(ParseError::new(WANTED))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_multiple_of_an_eighth() {
        for (text, eighths) in [("4", 32), ("3.5", 28), ("4.125", 33), ("0", 0), ("8", 64)] {
            assert_eq!(text.parse::<Width>().unwrap().eighths(), eighths, "{text}");
        }
        for text in ["", "8.125", "-1", "4.1", "4 bits", "NaN"] {
            assert!(text.parse::<Width>().is_err(), "{text}");
        }
        assert_eq!(Width::from_bits(4).unwrap().words(64), 256);
    }
}
