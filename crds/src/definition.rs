//! The custom resource definition, as it is applied and committed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Map, Number, Value};

use crate::LynxDeployment;

/// The definition of LynxDeployment: what kube derives, without what an API server would warn about or take wrongly.
pub fn crd() -> CustomResourceDefinition {
    serde_json::from_value(tidy()).expect("only descriptions, formats and `nullable` were touched")
}

/// The same as YAML.
pub fn yaml() -> String {
    let mut definition = tidy();
    whole_numbers(&mut definition);
    serde_norway::to_string(&definition).expect("a CRD is plain data")
}

fn tidy() -> Value {
    let mut definition = serde_json::to_value(LynxDeployment::crd()).expect("a CRD is plain data");
    if let Some(Value::Array(versions)) = definition.pointer_mut("/spec/versions") {
        for version in versions {
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                each_object(schema, &tidy_object);
            }
        }
    }
    definition
}

fn tidy_object(object: &mut Map<String, Value>) {
    // A nullable field keeps its null, for which CEL's has() is true; without it a null is refused by name.
    if object.get("nullable").is_some_and(Value::is_boolean) {
        object.remove("nullable");
    }
    // Unsigned formats are unknown to API servers, which say so at every apply; minimum and maximum say the same.
    let format = object.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| format.starts_with("uint")) {
        object.remove("format");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

/// Bounds are floats in Kubernetes' own types; in YAML `1024` reads better than `1024.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number
                .to_string()
                .strip_suffix(".0")
                .and_then(|n| n.parse().ok());
            if let Some(whole) = whole
                .filter(|_| number.is_f64())
                .and_then(Number::from_i128)
            {
                *number = whole;
            }
        }
        Value::Object(object) => object.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn each_object(value: &mut Value, act: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            act(object);
            object
                .values_mut()
                .for_each(|value| each_object(value, act));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| each_object(value, act)),
        _ => {}
    }
}
