//! What the parsers of this crate share.

use core::fmt;

/// A text that is not the unit it should be; says what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    wanted: &'static str,
}

impl ParseError {
    pub(crate) const fn new(wanted: &'static str) -> Self {
        Self { wanted }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.wanted)
    }
}

impl core::error::Error for ParseError {}

/// Splits `2.5 mbit` into the finite number and its unit.
pub(crate) fn number_and_unit<'a>(
    text: &'a str,
    wanted: &'static str,
) -> Result<(f64, &'a str), ParseError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| ParseError::new(wanted))?;
    if number.is_finite() {
        Ok((number, unit.trim()))
    } else {
        Err(ParseError::new(wanted))
    }
}
