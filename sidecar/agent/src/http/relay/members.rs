//! The members of a JSON object as they stand: names are read, values are not.
//!
//! What is not the agent's affair goes on byte for byte: an order of properties that a schema or a template depends on, numbers
//! of any size, everything that a later version of an engine may take.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object's members, in order, each name once.
#[derive(Debug)]
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The object that these bytes are.
    ///
    /// # Errors
    /// Where they are none: with the line and the column of what is wrong. Where a name comes twice, since whoever reads it
    /// after this may take the other one.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The value of this name, unless it is `null`.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found
            .map(|(_, value)| *value)
            .filter(|value| value.get() != "null")
    }

    /// Takes these members out.
    pub(super) fn without(&mut self, names: &[&str]) {
        self.0.retain(|(own, _)| !names.contains(&own.as_str()));
    }

    /// The object's text, with `more` at its end.
    pub(super) fn write(&self, more: &[(&str, &str)]) -> String {
        let own = self
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()));
        let mut text = String::from("{");
        for (name, value) in own.chain(more.iter().copied()) {
            if text.len() > 1 {
                text.push(',');
            }
            text += &serde_json::Value::from(name).to_string();
            text.push(':');
            text += value;
        }
        text.push('}');
        text
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if !names.insert(name.clone()) {
                let name = super::super::error::echo(&name);
                return Err(A::Error::custom(format_args!(
                    "the field {name} comes twice"
                )));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_out_stays_as_it_is() {
        let text = r#" {"b": {"z":1,"a":[1e400, 18446744073709551616]} , "a\u0062":"\ud83d\ude00", "n":null}"#;
        let mut members = Members::read(text.as_bytes()).unwrap();
        assert!(members.get("n").is_none() && members.get("ab").is_some());
        members.without(&["n"]);
        let written = members.write(&[("x", "7")]);
        assert_eq!(
            written,
            r#"{"b":{"z":1,"a":[1e400, 18446744073709551616]},"ab":"\ud83d\ude00","x":7}"#
        );
        assert_eq!(
            Members::read(b"{}").unwrap().write(&[("x", "7")]),
            r#"{"x":7}"#
        );
    }

    #[test]
    fn what_is_no_object_is_told_with_its_place() {
        for (text, why) in [
            (&b""[..], "EOF"),
            (b"[]", "an object"),
            (b"{\"a\":1,\"\\u0061\":2}", "a comes twice"),
            (b"{\"a\":}", "column 6"),
            (b"{\"a\":\"\xff\"}", "column"),
            (b"{\"a\":1} 2", "trailing"),
        ] {
            let error = Members::read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
