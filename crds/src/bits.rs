//! A mean width in a manifest.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lynx_units::Width;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A mean width from 1 to 8 bits in steps of an eighth: `4` or `"3.5"`.
///
/// An integer or a string, never a float: Kubernetes' API conventions keep floats out of a spec, because clients differ
/// in how they write them, and a field manager that writes `4.0` for `4` would own a change that nobody made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits(Width);

const WANTED: &str = "a width from 1 to 8 bits in steps of 0.125, such as 4 or \"3.5\"";
const PATTERN: &str = r"^([1-7](\.(0|125|25|250|375|5|50|500|625|75|750|875))?|8(\.0)?)$";

impl Bits {
    /// `width`; `None` below one bit.
    pub fn from_width(width: Width) -> Option<Self> {
        (width.eighths() >= 8).then_some(Self(width))
    }

    /// `bits` whole bits; `None` outside of 1 to 8.
    pub fn from_bits(bits: u8) -> Option<Self> {
        Width::from_bits(bits).and_then(Self::from_width)
    }

    /// The width.
    pub const fn width(self) -> Width {
        self.0
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Bits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let width = text.parse().ok();
        width
            .and_then(Self::from_width)
            .ok_or_else(|| format!("expected {WANTED}, not `{text}`"))
    }
}

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let eighths = self.0.eighths();
        if eighths.is_multiple_of(8) {
            serializer.serialize_u8(eighths / 8)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrString;

        impl Visitor<'_> for IntOrString {
            type Value = Bits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WANTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bits, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, bits: u64) -> Result<Bits, E> {
                self.visit_str(&bits.to_string())
            }

            fn visit_i64<E: Error>(self, bits: i64) -> Result<Bits, E> {
                self.visit_str(&bits.to_string())
            }
        }

        deserializer.deserialize_any(IntOrString)
    }
}

impl JsonSchema for Bits {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Bits".into()
    }

    /// The rule says in words what is wrong; the pattern, which is for strings alone, keeps out `"4e0"`, which CEL takes
    /// for a number.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": PATTERN,
            "x-kubernetes-validations": [{
                "rule": "double(self) >= 1.0 && double(self) <= 8.0 && double(int(double(self) * 8.0)) == double(self) * 8.0",
                "message": format!("write {WANTED}"),
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_bits_are_integers_and_the_others_are_strings() {
        for (text, again) in [
            ("4", "4"),
            ("\"4\"", "4"),
            ("\"4.0\"", "4"),
            ("\"3.5\"", "\"3.5\""),
            ("\"3.50\"", "\"3.5\""),
            ("8", "8"),
        ] {
            let bits: Bits = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&bits).unwrap(), again, "{text}");
        }
    }

    #[test]
    fn a_float_and_a_width_out_of_range_are_refused_with_what_is_wanted() {
        for text in [
            "3.5",
            "0",
            "9",
            "-1",
            "\"0.875\"",
            "\"8.125\"",
            "\"3.3\"",
            "\"four\"",
        ] {
            let error = serde_json::from_str::<Bits>(text).unwrap_err().to_string();
            assert!(
                error.contains("from 1 to 8 bits in steps of 0.125"),
                "{text}: {error}"
            );
        }
    }
}
