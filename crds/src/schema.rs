//! Schemas of the parts of a pod.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of `T` without its descriptions, which everybody finds in `kubectl explain pod.spec` and which would make
/// the CRD ten times as long.
pub(crate) fn bare<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    strip(schema.ensure_object());
    schema
}

fn strip(object: &mut serde_json::Map<String, Value>) {
    // A property may itself be called "description"; its value is then a schema, not a text.
    if object.get("description").is_some_and(Value::is_string) {
        object.remove("description");
    }
    for value in object.values_mut() {
        descend(value);
    }
}

fn descend(value: &mut Value) {
    match value {
        Value::Object(object) => strip(object),
        Value::Array(items) => items.iter_mut().for_each(descend),
        _ => {}
    }
}
