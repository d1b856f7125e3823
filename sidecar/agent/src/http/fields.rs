//! Reading a JSON object field by field, so that what is wrong is told with the field's name.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use http::StatusCode;
use serde_json::{Map, Value};

use super::error::{ApiError, echo};

/// A JSON object. A field that is `null` is as one that isn't there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// What stands before a field's name in messages.
    prefix: &'a str,
}

/// A request's body as bytes.
///
/// # Errors
/// Where it is too large.
pub(super) fn bytes(body: Result<Bytes, BytesRejection>, limit: u64) -> Result<Bytes, ApiError> {
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(limit),
        _ => ApiError::request("the request's body can't be read"),
    })
}

/// Bytes as a JSON object.
///
/// # Errors
/// Where they are none: with the line and the column of what is wrong.
pub(super) fn json_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ApiError::request("the request's body is no JSON object")),
        Err(error) => Err(ApiError::request(format!(
            "the request's body is no JSON: {error}"
        ))),
    }
}

impl<'a> Fields<'a> {
    pub(super) const fn new(object: &'a Map<String, Value>, prefix: &'a str) -> Self {
        Self { object, prefix }
    }

    /// A field's name in messages. It may be the client's own invention.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{}", self.prefix, echo(name))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.object.keys().map(String::as_str)
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, wanted: &str) -> ApiError {
        let name = self.name(name);
        ApiError::param(&name, format!("{name} must be {wanted}"))
    }

    fn read<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        self.get(name)
            .map(|value| read(value).ok_or_else(|| self.wrong(name, wanted)))
            .transpose()
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.read(name, "a string", Value::as_str)
    }

    pub(super) fn truth(&self, name: &str) -> Result<bool, ApiError> {
        self.read(name, "true or false", Value::as_bool)
            .map(Option::unwrap_or_default)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.read(name, "an object", Value::as_object)
    }

    /// A number from `min` to `max`.
    pub(super) fn number(&self, name: &str, min: f64, max: f64) -> Result<Option<f64>, ApiError> {
        let wanted = format!("a number from {min} to {max}");
        self.read(name, &wanted, |value| {
            value.as_f64().filter(|number| (min..=max).contains(number))
        })
    }

    /// A whole number above zero.
    pub(super) fn count(&self, name: &str) -> Result<Option<u32>, ApiError> {
        self.read(name, "a whole number above 0", |value| {
            let count = whole(value).filter(|count| *count > 0)?;
            Some(u32::try_from(count).unwrap_or(u32::MAX))
        })
    }

    /// A whole number from `min` to `max`.
    pub(super) fn whole(&self, name: &str, min: u32, max: u32) -> Result<Option<u32>, ApiError> {
        let wanted = format!("a whole number from {min} to {max}");
        self.read(name, &wanted, |value| {
            let number = u32::try_from(whole(value)?).ok()?;
            Some(number).filter(|number| (min..=max).contains(number))
        })
    }

    /// A whole number, however it is written; negative ones in two's complement, and those of more than 64 bits as JSON's
    /// usual numbers have them.
    pub(super) fn seed(&self, name: &str) -> Result<Option<u64>, ApiError> {
        self.read(name, "a whole number", |value| {
            let exact = value.as_u64();
            exact
                .or_else(|| value.as_i64().map(i64::cast_unsigned))
                .or_else(|| value.as_f64().and_then(seed_of))
        })
    }
}

/// A number that has no fraction, however it is written: JSON does not tell `3` from `3.0`. One that is too large for the type
/// is as large as can be.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value
            .as_f64()
            .filter(|number| *number >= 0.0 && number.fract() == 0.0)?;
        Some(format!("{number:.0}").parse().unwrap_or(u64::MAX))
    })
}

fn seed_of(number: f64) -> Option<u64> {
    if number.fract() != 0.0 {
        return None;
    }
    let digits = format!("{number:.0}");
    let small = digits.parse::<u64>().ok();
    let small = small.or_else(|| digits.parse().ok().map(i64::cast_unsigned));
    Some(small.unwrap_or_else(|| number.to_bits()))
}

/// Numbers of the model's vocabulary.
pub(super) fn tokens(items: &[Value]) -> Option<Vec<u32>> {
    items
        .iter()
        .map(|item| u32::try_from(item.as_u64()?).ok())
        .collect()
}
