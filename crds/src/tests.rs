//! The rules, the defaults and the examples.

mod manifests;
mod rules;
mod structure;

use serde_json::{Value, json};

use crate::LynxDeployment;

/// The least that a user must write.
fn minimal() -> Value {
    json!({
        "apiVersion": "lynx.dev/v1alpha1",
        "kind": "LynxDeployment",
        "metadata": {"name": "tiny"},
        "spec": {
            "model": {"name": "tiny", "source": {"hostPath": {"path": "/models/tiny.gguf"}}},
            "engine": {"type": "Embedded"},
        },
    })
}

/// The minimal manifest with values put at JSON pointers; null takes away.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut manifest = minimal();
    for (pointer, value) in changes {
        let mut place = &mut manifest;
        let mut steps: Vec<&str> = pointer.split('/').skip(1).collect();
        let last = steps.pop().unwrap();
        for step in steps {
            place = place
                .as_object_mut()
                .unwrap()
                .entry(step)
                .or_insert(json!({}));
        }
        let place = place.as_object_mut().unwrap();
        if value.is_null() {
            place.remove(last).unwrap();
        } else {
            place.insert(last.to_owned(), value.clone());
        }
    }
    manifest
}

fn parse(manifest: Value) -> LynxDeployment {
    let text = manifest.to_string();
    serde_json::from_value(manifest).unwrap_or_else(|error| panic!("{error}: {text}"))
}
