//! What the operator writes into an agent's configuration is one to the agent: the operator's own types mirror it, and its
//! snapshots are what it really writes.
#![expect(clippy::unwrap_used, reason = "a test's failure is its report")]

use std::path::Path;

use lynx_agent::config::{Config, Role};
use serde::Deserialize as _;
use serde_norway::{Deserializer, Value};

/// Every agent.yaml in the ConfigMaps of a snapshot.
fn files(snapshot: &str) -> Vec<String> {
    let (_, documents) = snapshot[3..].split_once("\n---\n").unwrap();
    Deserializer::from_str(documents)
        .map(|document| Value::deserialize(document).unwrap())
        .filter_map(|object| Some(object.get("data")?.get("agent.yaml")?.as_str()?.to_owned()))
        .collect()
}

#[test]
fn every_configuration_that_the_operator_writes_is_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../operator/src/build/snapshots");
    let pod = |name: &str| match name {
        "LYNX_POD_NAME" => Some("smol-prefill-0".to_owned()),
        "LYNX_POD_IP" => Some("10.0.0.7".to_owned()),
        _ => None,
    };
    let mut roles = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        for file in files(&std::fs::read_to_string(&path).unwrap()) {
            match Config::parse(&file, &pod) {
                Ok(config) => roles.push(config.role),
                Err(mistakes) => panic!("{}: {mistakes}\n{file}", path.display()),
            }
        }
    }
    assert!(roles.contains(&Role::Prefill) && roles.contains(&Role::Decode));
}
