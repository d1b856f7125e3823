//! The codec as its users see it.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "test values are small"
)]

#[cfg(test)]
mod common;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod vectors;
