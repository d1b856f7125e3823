//! A rate of bits.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::{Bytes, ParseError, parse};

/// Bits per second: what links are rated in. Zero means "not known yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// No rate known.
    pub const ZERO: Self = Self(0);

    /// `bits` per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// `megabits` (10^6 bits) per second.
    pub const fn from_megabits_per_second(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// The rate at which `bytes` pass in `elapsed`; [`BitRate::ZERO`] where no time passed.
    pub fn from_delivery(bytes: Bytes, elapsed: Duration) -> Self {
        let nanos = elapsed.as_nanos();
        if nanos == 0 {
            return Self::ZERO;
        }
        let rate = u128::from(bytes.bits()) * 1_000_000_000 / nanos;
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate; `None` where the rate is zero.
    pub fn time_for(self, bytes: Bytes) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        let nanos = u128::from(bytes.bits()) * 1_000_000_000 / u128::from(self.0);
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// How many bytes pass in `time` at this rate, rounded down.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
        let rate = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", rate / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} Mbit/s", rate / 1e6),
            _ => write!(f, "{:.2} Gbit/s", rate / 1e9),
        }
    }
}

/// `100mbit`, `1gbit`, `2.5 Gbit/s`, `640kbit`: a number and a unit; a bare number is refused, because half of its
/// readers would take it for bytes.
impl FromStr for BitRate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (number, unit) = parse::number_and_unit(text, "a bit rate such as 100mbit or 1gbit")?;
        let unit = unit
            .strip_suffix("/s")
            .or_else(|| unit.strip_suffix("ps"))
            .unwrap_or(unit);
        let scale = match unit {
            u if u.eq_ignore_ascii_case("bit") => 1.0,
            u if u.eq_ignore_ascii_case("kbit") => 1e3,
            u if u.eq_ignore_ascii_case("mbit") => 1e6,
            u if u.eq_ignore_ascii_case("gbit") => 1e9,
            _ => return Err(ParseError::new("a bit rate such as 100mbit or 1gbit")),
        };
        let rate = number * scale;
        if !(1.0..1e15).contains(&rate) {
            return Err(ParseError::new("a bit rate between 1bit and 1000000gbit"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in 1..1e15, checked above"
        )]
        Ok(Self(rate as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_with_a_unit() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("1gbit", 1_000_000_000),
            ("2.5 Gbit/s", 2_500_000_000),
            ("9kbit", 9000),
        ] {
            assert_eq!(
                text.parse::<BitRate>().unwrap().bits_per_second(),
                bits,
                "{text}"
            );
        }
        for text in [
            "",
            "100",
            "mbit",
            "-1mbit",
            "1e99gbit",
            "NaNmbit",
            "0mbit",
            "10 parsecs",
            "infmbit",
        ] {
            assert!(text.parse::<BitRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn time_and_bytes_are_inverse() {
        let rate = BitRate::from_megabits_per_second(100);
        assert_eq!(rate.bytes_in(Duration::from_millis(2)), Bytes::new(25_000));
        assert_eq!(
            rate.time_for(Bytes::new(25_000)),
            Some(Duration::from_millis(2))
        );
        assert_eq!(BitRate::ZERO.time_for(Bytes::new(1)), None);
        assert_eq!(
            BitRate::from_delivery(Bytes::new(25_000), Duration::from_millis(2)),
            rate
        );
    }
}
