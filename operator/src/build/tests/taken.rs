//! What the operator puts into pods, nobody else can put there: each name is read off the pods themselves.

use std::collections::BTreeSet;

use super::*;
use crate::validate::objections;

/// Specs that between them have everything in their pods that the operator may add.
fn specs() -> [Value; 3] {
    let key = json!({"apiKeySecret": {"name": "mine"}});
    let profile = json!({"configMap": {"name": "mine"}});
    let devices = json!({
        "gpus": {"resourceClaimTemplate": "both", "request": "gpu"},
        "rdma": {"resourceClaimTemplate": "both", "request": "nic", "networks": ["fabric"]},
    });
    [
        embedded(),
        merged(
            embedded(),
            json!({
                "engine": {"type": "VLLM", "image": "x", "http": key},
                "transfer": {"tls": {"mode": "OperatorCA"}, "anchor": {"profile": profile}},
                "topology": {"mode": "Required", "nodeLabel": "rack"},
                "observability": {"otlp": {"endpoint": "http://x:1"}},
                "prefill": devices, "decode": devices,
            }),
        ),
        json!({
            "model": {"name": "m", "source": {"image": {"reference": "x"}}},
            "engine": {"type": "Custom", "image": "x", "http": key},
            "transfer": {"tls": {"mode": "Secret", "secretName": "mine"}},
        }),
    ]
}

fn each<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = Value> + 'a {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(move |one| one[field].clone())
}

/// Changes of a role's pods or of the engine that would collide with what the operator puts into this role's pods.
fn collisions(spec: &Value, role: &str) -> Vec<Value> {
    let objects = built(spec.clone());
    let template = deployment(&objects, role)["spec"]["template"].clone();
    let pod = &template["spec"];
    let [engine, agent] = [&pod["containers"][0], &pod["initContainers"][0]];
    let of_template = |template: Value| json!({role: {"template": template}});
    let mut found: Vec<Value> = Vec::new();
    for name in each(&pod["volumes"], "name") {
        found.push(of_template(
            json!({"volumes": [{"name": name, "emptyDir": {}}]}),
        ));
    }
    for path in each(&engine["volumeMounts"], "mountPath") {
        found.push(of_template(json!({
            "volumes": [{"name": "mine", "emptyDir": {}}],
            "volumeMounts": [{"name": "mine", "mountPath": path}],
        })));
    }
    for name in each(&engine["env"], "name") {
        if name.as_str().unwrap().starts_with("LYNX_") {
            let env = json!([{"name": name, "value": "mine"}]);
            found.push(of_template(json!({"env": env})));
            found.push(json!({"engine": {"env": env}}));
        }
    }
    for key in template["metadata"]["annotations"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| *key != "k8s.v1.cni.cncf.io/networks")
    {
        found.push(of_template(json!({"annotations": {key: "mine"}})));
    }
    for name in each(&agent["ports"], "name") {
        found.push(json!({"engine": {"ports": [{"name": name, "containerPort": 9999}]}}));
    }
    for port in numbers_of_ports(pod) {
        found.push(json!({"engine": {"ports": [{"name": "mine", "containerPort": port}]}}));
    }
    found
}

/// Wherever in a pod a port is named by its number.
fn numbers_of_ports(value: &Value) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "port" || name == "containerPort" {
                    found.extend(field.as_u64());
                }
                found.extend(numbers_of_ports(field));
            }
        }
        Value::Array(items) => found.extend(items.iter().flat_map(numbers_of_ports)),
        _ => {}
    }
    found
}

#[test]
fn every_name_place_and_port_that_the_operator_gives_a_pod_is_refused_to_others() {
    let mut tried = BTreeSet::new();
    for spec in specs() {
        assert_eq!(objections(&object(spec.clone())), [""; 0]);
        for collision in ["prefill", "decode"].map(|role| collisions(&spec, role)) {
            for change in collision {
                let said = objections(&object(merged(spec.clone(), change.clone())));
                assert_eq!(said.len(), 1, "{change}: {said:?}");
                tried.insert(change.to_string());
            }
        }
    }
    let all = Vec::from_iter(tried).join("\n");
    for known in [
        "\"lynx\"",
        "\"tmp\"",
        "\"tls\"",
        "\"model\"",
        "\"anchor-profile\"",
        "\"agent-config\"",
        "\"engine-api-key\"",
        "/run/lynx",
        "/models",
        "LYNX_ROLE",
        "8080",
        "8081",
        "7400",
        "7401",
    ] {
        assert!(all.contains(known), "{known} was not tried:\n{all}");
    }
}

#[test]
fn what_this_spec_does_not_need_is_free_and_defaults_can_be_replaced() {
    let decode = json!({"template": {
        "volumes": [{"name": "tls", "emptyDir": {}}, {"name": "engine-api-key", "emptyDir": {}}],
        "volumeMounts": [{"name": "tls", "mountPath": "/etc/mine"}],
        "annotations": {"k8s.v1.cni.cncf.io/networks": "mine"},
        "env": [{"name": "HOME", "value": "/etc/mine"}, {"name": "LYNX_MINE", "value": "x"}],
    }});
    let spec = merged(embedded(), json!({"decode": decode}));
    assert_eq!(objections(&object(spec.clone())), [""; 0]);
    let encrypted = json!({"transfer": {"tls": {"mode": "OperatorCA"}}});
    let said = objections(&object(merged(spec, encrypted)));
    assert_eq!(
        said,
        [
            "spec.decode.template.volumes: `tls` is the name of one of the operator's volumes; choose another"
        ]
    );
}
