//! The page about every field of a LynxDeployment, from its definition.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::folder::Folder;

const ABOUT: &str = "\
# LynxDeployment, field by field

*Made by `cargo xtask reference` from the types in [crds/](../crds/src/spec.rs); a difference fails `cargo xtask check`.*

`lynx.dev/v1alpha1`. What a field is for as a whole, and how the parts work together, is in [kubernetes.md](kubernetes.md). A field
in **bold** has to be there where its parent is. Types with a capital are Kubernetes' own. Whatever a rule refuses, the API server refuses
in these words; `kubectl explain lynx.spec --recursive` says the same on a cluster.
";

/// Fields whose schemas are Kubernetes' own, by the names of their types.
const KUBERNETES: [(&str, &str); 8] = [
    ("affinity", "Affinity"),
    ("agentResources", "ResourceRequirements"),
    ("env", "EnvVar"),
    ("resources", "ResourceRequirements"),
    ("tolerations", "Toleration"),
    ("volumeMounts", "VolumeMount"),
    ("volumes", "Volume"),
    ("conditions", "Condition"),
];

/// `docs/reference.md`.
pub(crate) fn folder() -> Folder {
    Folder {
        path: "docs",
        is_shared: true,
        files: vec![("reference.md".to_owned(), text())],
    }
}

fn text() -> String {
    let definition = serde_json::to_value(lynx_crds::crd()).unwrap_or_default();
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema");
    let fields = schema.and_then(|schema| schema["properties"].as_object());
    let mut text = ABOUT.to_owned();
    for name in ["spec", "status"] {
        if let Some(schema) = fields.and_then(|fields| fields.get(name)) {
            section(&mut text, name, schema);
        }
    }
    text
}

/// An object's own fields, its rules, and then a section for each object in it.
fn section(text: &mut String, path: &str, schema: &Value) {
    let none = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&none);
    // Writing to a String can't fail.
    write!(
        text,
        "\n## `{path}`\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n",
        description(schema)
    )
    .ok();
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for (name, field) in fields {
        let is_required = required.iter().any(|one| *one == name);
        let shown = if is_required {
            format!("**`{name}`**")
        } else {
            format!("`{name}`")
        };
        let meaning = [description(field), bounds(field), refusals(field)].join(" ");
        let meaning = meaning.trim().replace('|', "\\|");
        writeln!(text, "| {shown} | {} | {meaning} |", kind(name, field)).ok();
    }
    rules(text, schema);
    for (name, field) in fields {
        let inner = if field["items"].is_object() {
            &field["items"]
        } else {
            field
        };
        let is_ours = !KUBERNETES.iter().any(|(theirs, _)| theirs == name);
        if is_ours && inner["properties"].is_object() {
            let brackets = if field["items"].is_object() { "[]" } else { "" };
            section(text, &format!("{path}.{name}{brackets}"), inner);
        }
    }
}

fn rules(text: &mut String, schema: &Value) {
    let messages = messages(schema);
    if !messages.is_empty() {
        text.push_str("\nRules:\n\n");
        for message in messages {
            writeln!(text, "- {message}").ok();
        }
    }
}

/// The rules of a field that has no section of its own.
fn refusals(field: &Value) -> String {
    if field["properties"].is_object() {
        return String::new();
    }
    let told = messages(field).into_iter();
    told.map(|message| format!("*Rule: {message}.*"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn messages(schema: &Value) -> Vec<&str> {
    let rules = schema["x-kubernetes-validations"].as_array();
    let told = rules.into_iter().flatten();
    told.filter_map(|rule| rule["message"].as_str()).collect()
}

fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind(name: &str, field: &Value) -> String {
    let theirs = KUBERNETES.iter().find(|(one, _)| *one == name);
    let one = |schema: &Value| match (theirs, schema["type"].as_str()) {
        (Some((_, theirs)), _) => (*theirs).to_owned(),
        (None, Some(kind)) => kind.to_owned(),
        (None, None) if schema["x-kubernetes-int-or-string"].is_boolean() => {
            "integer or string".to_owned()
        }
        (None, None) => "any".to_owned(),
    };
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
        return format!("`{}`", values.join("`, `"));
    }
    if field["items"].is_object() {
        return format!("list of {}", one(&field["items"]));
    }
    if field["additionalProperties"].is_object() {
        return format!("map of {}", one(&field["additionalProperties"]));
    }
    one(field)
}

/// What a value may be, and what it is where nobody says.
fn bounds(field: &Value) -> String {
    let mut all = Vec::new();
    for (key, word) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters at least:"),
        ("maxLength", "characters at most:"),
        ("maxItems", "items at most:"),
    ] {
        if let Some(number) = field[key].as_f64() {
            all.push(format!("{word} {number}"));
        }
    }
    match &field["default"] {
        Value::Null => {}
        Value::Object(_) => {}
        Value::String(text) => all.push(format!("default `{text}`")),
        value => all.push(format!("default `{value}`")),
    }
    if all.is_empty() {
        String::new()
    } else {
        format!("*{}.*", all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_spec_has_a_section_and_every_rule_is_told() {
        let text = text();
        for heading in ["spec", "spec.transfer.anchor", "status.rollout"] {
            assert!(text.contains(&format!("\n## `{heading}`\n")), "{heading}");
        }
        let mut messages = Vec::new();
        let definition = serde_json::to_value(lynx_crds::crd()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        collect(&schema["properties"]["spec"], &mut messages);
        assert!(!messages.is_empty());
        for message in messages {
            assert!(text.contains(&message), "{message}");
        }
    }

    fn collect(schema: &Value, messages: &mut Vec<String>) {
        let rules = schema["x-kubernetes-validations"].as_array();
        let told = rules.into_iter().flatten();
        messages.extend(told.filter_map(|rule| Some(rule["message"].as_str()?.to_owned())));
        for field in schema["properties"].as_object().into_iter().flatten() {
            collect(field.1, messages);
        }
    }
}
