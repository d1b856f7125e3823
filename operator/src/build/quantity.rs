//! Quantities, written in one way: `1000m` of a CPU is `1`, and says nothing new about a pod.

use serde_json::Value;

/// What hides behind a suffix, as a power of ten or of two.
const DECIMAL: [(&str, i32); 8] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
];
const BINARY: [(&str, u32); 5] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50)];
/// Everything is counted in these: a thousand millionth.
const NANOS: i32 = 9;

/// Writes all resources in a pod's template in one way.
pub(super) fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("limits" | "requests", Value::Object(resources)) => {
                        resources.values_mut().for_each(one);
                    }
                    ("sizeLimit", size) => one(size),
                    (_, other) => normalise(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        _ => {}
    }
}

/// What is no quantity stays as it is.
fn one(value: &mut Value) {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Some(nanos) = nanos(&text) {
        *value = Value::String(format!("{nanos}n"));
    }
}

fn nanos(text: &str) -> Option<i128> {
    for (suffix, power) in BINARY {
        if let Some(number) = text.strip_suffix(suffix) {
            return decimal(number, 0)?.checked_mul(1 << power);
        }
    }
    for (suffix, power) in DECIMAL {
        if let Some(number) = text.strip_suffix(suffix) {
            return decimal(number, power);
        }
    }
    match text.split_once(['e', 'E']) {
        Some((number, power)) if !power.is_empty() => decimal(number, power.parse().ok()?),
        Some((number, _)) => decimal(number, 18),
        None => decimal(text, 0),
    }
}

/// A number such as `1.5`, times ten to the power.
fn decimal(number: &str, power: i32) -> Option<i128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{part}").parse().ok()?;
    let shift = NANOS
        .checked_add(power)?
        .checked_sub(i32::try_from(part.len()).ok()?)?;
    let factor = 10i128.checked_pow(shift.unsigned_abs())?;
    if shift >= 0 {
        digits.checked_mul(factor)
    } else {
        (digits % factor == 0).then(|| digits / factor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_quantities_are_equal_texts_and_others_are_not() {
        for (one, other) in [
            ("1", "1000m"),
            ("1Gi", "1024Mi"),
            ("0.5", "500m"),
            ("1e3", "1k"),
            ("2E", "2000P"),
        ] {
            assert_eq!(nanos(one).unwrap(), nanos(other).unwrap(), "{one} {other}");
        }
        assert_ne!(nanos("1G"), nanos("1Gi"));
        assert_eq!(nanos("much"), None);
        assert_eq!(nanos("1e99"), None);
    }

    #[test]
    fn only_resources_are_touched() {
        let mut template =
            json!({"a": "1000m", "resources": {"limits": {"cpu": "1000m", "odd": "x"}}});
        normalise(&mut template);
        assert_eq!(
            template,
            json!({"a": "1000m", "resources": {"limits": {"cpu": "1000000000n", "odd": "x"}}})
        );
    }
}
