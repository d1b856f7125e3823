//! What an API server checks besides the rules, in small: enough to find a misspelt field in an example.

use serde_json::Value;

/// The schema of the whole object.
pub(super) fn schema() -> Value {
    let definition = serde_json::to_value(crate::crd()).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// A sentence for every value that the schema doesn't allow.
pub(super) fn faults(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(allowed) = schema["enum"].as_array() {
        found.extend(
            (!allowed.contains(value)).then(|| format!("{path}: {value} is none of {allowed:?}")),
        );
    }
    if let Some(number) = value.as_f64() {
        let low = schema["minimum"]
            .as_f64()
            .is_some_and(|minimum| number < minimum);
        let high = schema["maximum"]
            .as_f64()
            .is_some_and(|maximum| number > maximum);
        found.extend((low || high).then(|| format!("{path}: {value} is out of range")));
    }
    let kind_fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    found.extend((!kind_fits).then(|| format!("{path}: {value} is no {}", schema["type"])));
    match value {
        Value::Object(object) => {
            // An API server knows the object's own metadata better than the definition.
            let fields = object
                .iter()
                .filter(|(name, _)| !path.is_empty() || *name == "spec");
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let known = schema["properties"].get(name);
                match known.or_else(|| schema.get("additionalProperties")) {
                    Some(schema) => found.extend(faults(schema, value, &path)),
                    None => found.push(format!("{path}: no such field")),
                }
            }
            let required = schema["required"].as_array().into_iter().flatten();
            let missing = required
                .filter_map(Value::as_str)
                .filter(|name| !object.contains_key(*name));
            found.extend(missing.map(|name| format!("{path}.{name} is missing")));
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                found.extend(faults(&schema["items"], item, &format!("{path}[{place}]")));
            }
        }
        _ => {}
    }
    found
}
