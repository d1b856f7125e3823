use serde_json::json;

use super::*;

#[test]
fn a_looks_span_names_the_generation_that_its_pods_have() {
    let object = json!({
        "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
        "metadata": {"name": "smol", "namespace": "team"},
        "spec": {
            "model": {"name": "smol", "source": {"hostPath": {"path": "/m.gguf"}}},
            "engine": {"type": "Embedded"},
        },
    });
    let object: LynxDeployment = serde_json::from_value(object).unwrap();
    let config = OperatorConfig::default();
    let built = build::build(&Inputs {
        object: &object,
        config: &config,
        prefill: 1,
        decode: 1,
        certificates: None,
    });
    let built = built.unwrap();
    let label = built.iter().find_map(|one| {
        let labels = one.value.pointer("/spec/template/metadata/labels")?;
        labels["lynx.dev/generation"].as_str()
    });
    let told = told(&object, &key(&object));
    let said = |name: &str| {
        let one = told.iter().find(|one| one.key.as_str() == name);
        one.map(|one| one.value.to_string())
    };
    assert_eq!(said("k8s.namespace.name").as_deref(), Some("team"));
    assert_eq!(said("lynx.deployment").as_deref(), Some("smol"));
    assert_eq!(said("lynx.generation").as_deref(), label);
    assert!(label.is_some());
}
