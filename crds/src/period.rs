//! A length of time in a manifest.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time such as `500ms`, `30s`, `2m` or `1h30m`: whole numbers with a unit, longer than nothing.
///
/// Narrower than Go's syntax, which also has fractions, signs and microseconds that no field here has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Duration);

/// Longest unit first, as they are written.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Period {
    /// `duration`, cut to whole milliseconds; `None` where nothing is left.
    pub fn new(duration: Duration) -> Option<Self> {
        let millis = u64::try_from(duration.as_millis()).ok()?;
        (millis > 0).then(|| Self(Duration::from_millis(millis)))
    }

    /// `seconds` seconds, at least one.
    pub const fn from_secs(seconds: u32) -> Self {
        let seconds = if seconds == 0 { 1 } else { seconds };
        Self(Duration::from_secs(seconds as u64))
    }

    /// The length.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        for (unit, millis) in UNITS {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
            }
            rest %= millis;
        }
        Ok(())
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("expected a time such as 500ms, 30s, 2m or 1h30m, not `{text}`");
        let mut millis = 0_u64;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .ok_or_else(refused)?;
            let (number, tail) = rest.split_at(digits);
            let end = tail
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            let (_, factor) = known.ok_or_else(refused)?;
            let number: u64 = number.parse().map_err(|_| refused())?;
            let part = number.checked_mul(*factor).ok_or_else(refused)?;
            millis = millis.checked_add(part).ok_or_else(refused)?;
            rest = tail;
        }
        Self::new(Duration::from_millis(millis)).ok_or_else(refused)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    /// A CEL rule rather than a `pattern`, whose message would be the expression alone.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 16,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([0-9]{1,7}(ms|s|m|h))+$') && self.matches('[1-9]')",
                "message": "write a time longer than nothing, such as 500ms, 30s, 2m or 1h30m",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_reads_as_it_is_written() {
        for (text, millis, again) in [
            ("500ms", 500, "500ms"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "1m30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1h0m1ms", 3_600_001, "1h1ms"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.duration(), Duration::from_millis(millis), "{text}");
            assert_eq!(period.to_string(), again);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "0s",
            "30",
            "-1s",
            "1.5s",
            "3d",
            "s",
            "99999999999999999999h",
            "30 s",
        ] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
