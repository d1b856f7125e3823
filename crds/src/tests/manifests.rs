//! Defaults, round trips, the examples, and what nothing acts on yet.

use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::structure::{faults, schema};
use super::{minimal, parse, with};
use crate::spec::{AnchorMode, Fidelity, Split, Transport};
use crate::{ConditionType, LynxDeployment, condition, not_acted_on, set_condition};

#[test]
fn a_minimal_manifest_is_complete_by_its_defaults() {
    let deployment = parse(minimal());
    assert!(deployment.validate_cel().is_ok());
    let spec = &deployment.spec;
    assert_eq!(spec.model.served_name(), "tiny");
    assert_eq!(
        (spec.prefill.pool.replicas, spec.decode.pool.replicas),
        (1, 1)
    );
    assert_eq!(spec.transfer.transport, Transport::Auto);
    assert_eq!(spec.transfer.fidelity, Fidelity::Exact);
    assert_eq!(spec.transfer.split, Split::Auto);
    assert_eq!(spec.transfer.anchor.mode, AnchorMode::Adaptive);
    assert_eq!(spec.transfer.max_draft_tokens, 64);
    assert_eq!(spec.transfer.deadlines.transfer.to_string(), "30s");
    assert!(not_acted_on(spec).is_empty());
}

/// What the API server fills in must be what the types fill in, or an object would change when it is written back.
#[test]
fn the_schema_s_defaults_are_the_types_defaults() {
    let mut filled = minimal();
    fill(&schema(), &mut filled);
    assert_eq!(serde_json::to_value(parse(minimal())).unwrap(), filled);
}

fn fill(schema: &Value, value: &mut Value) {
    let (Some(fields), Some(object)) = (schema["properties"].as_object(), value.as_object_mut())
    else {
        return;
    };
    for (name, schema) in fields {
        if let Some(default) = schema.get("default") {
            object
                .entry(name.as_str())
                .or_insert_with(|| default.clone());
        }
        if let Some(value) = object.get_mut(name) {
            fill(schema, value);
        }
    }
}

#[test]
fn every_field_survives_being_read_and_written() {
    let mut full = with(&[
        (
            "/spec/engine",
            json!({"type": "VLLM", "image": "v:1", "args": ["--a"], "tensorParallelSize": 2,
            "imagePullPolicy": "Always", "env": [{"name": "A", "value": "b"}],
            "http": {"port": 8001, "apiKeySecret": {"name": "k", "key": "token"}},
            "ports": [{"name": "debug", "containerPort": 9}]}),
        ),
        (
            "/spec/decode",
            json!({"replicas": 3, "gpus": {"resourceClaimTemplate": "g", "request": "gpu", "count": 1},
            "rdma": {"resourceClaimTemplate": "g", "request": "nic", "networks": ["a/b"], "gidIndex": 3,
                "rails": 2, "trafficClass": {"anchor": 104, "residual": 0}},
            "template": {"resources": {"limits": {"cpu": "4"}}, "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}}, "volumes": [{"name": "v", "emptyDir": {}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}], "annotations": {"a": "b"},
                "imagePullSecrets": [{"name": "s"}], "priorityClassName": "high"},
            "autoscaling": {"minReplicas": 1, "maxReplicas": 4, "target": {"timeToAnchor": "200ms"}, "gpuBudget": 12,
                "prefill": {"minReplicas": 1, "maxReplicas": 3},
                "scaleUpStabilization": "15s", "scaleDownStabilization": "5m", "ratio": {"min": "1:4", "max": "1:1"}}}),
        ),
        (
            "/spec/transfer",
            json!({"transport": "RDMA", "fidelity": "Int8", "objective": "Verified",
            "allowProvisional": true, "maxDraftTokens": 8, "split": "Agent",
            "anchor": {"mode": "Fixed", "bits": "3.5", "minBits": 2, "maxBits": "5.125",
                "profile": {"configMap": {"name": "p", "key": "k"}}},
            "deadlines": {"transfer": "10s", "drain": "1h"}, "promisedRate": {"same": "100G", "cross": "25G"},
            "tls": {"mode": "CertManager", "issuerRef": {"name": "i", "kind": "Issuer"}}}),
        ),
        (
            "/spec/topology",
            json!({"mode": "Required", "nodeLabel": "rack"}),
        ),
        (
            "/spec/rollout",
            json!({"strategy": "Recreate", "maxSurge": 2, "progressDeadline": "5m"}),
        ),
        (
            "/spec/observability",
            json!({"otlp": {"endpoint": "http://a:1", "samplePercent": 5},
            "metrics": {"podMonitor": true}}),
        ),
    ]);
    assert_eq!(faults(&schema(), &full, ""), [""; 0]);
    fill(&schema(), &mut full);
    let deployment = parse(full.clone());
    assert_eq!(serde_json::to_value(&deployment).unwrap(), full);
    let paths: Vec<&str> = not_acted_on(&deployment.spec)
        .iter()
        .map(|one| one.path)
        .collect();
    assert!(paths.contains(&"spec.transfer.tls.issuerRef"), "{paths:?}");
}

#[test]
fn a_misspelt_field_is_found() {
    let manifest = with(&[(
        "/spec/prefill/template/tolerations",
        json!([{"kye": "gpu"}]),
    )]);
    let found = faults(&schema(), &manifest, "");
    assert_eq!(
        found,
        [".spec.prefill.template.tolerations[0].kye: no such field"]
    );
}

#[test]
fn the_examples_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for document in text.split("\n---\n") {
            let manifest: Value = serde_norway::from_str(document).unwrap();
            if manifest["kind"] != "LynxDeployment" {
                continue;
            }
            assert_eq!(
                faults(&schema(), &manifest, ""),
                [""; 0],
                "{}",
                path.display()
            );
            let deployment: LynxDeployment = parse(manifest);
            let refused = deployment.validate_cel().err();
            assert!(refused.is_none(), "{}: {refused:?}", path.display());
            names.push(deployment.name_any());
        }
    }
    assert!(names.len() >= 5, "{names:?}");
}

#[test]
fn the_definition_has_what_kubectl_scale_and_autoscalers_need() {
    let definition = crate::crd();
    let version = &definition.spec.versions[0];
    let scale = version
        .subresources
        .as_ref()
        .unwrap()
        .scale
        .as_ref()
        .unwrap();
    assert_eq!(scale.spec_replicas_path, ".spec.decode.replicas");
    assert_eq!(scale.status_replicas_path, ".status.decode.replicas");
    assert_eq!(
        scale.label_selector_path.as_deref(),
        Some(".status.selector")
    );
    let text = crate::yaml();
    assert!(
        !text.contains("nullable") && !text.contains("uint"),
        "an API server would warn"
    );
    // `kubectl apply` keeps a copy in an annotation, which may have 262144 bytes.
    assert!(text.len() < 256 * 1024, "{} bytes", text.len());
}

#[test]
fn a_condition_keeps_its_time_as_long_as_its_status() {
    let made = |status: &str, message: &str| Condition {
        type_: ConditionType::Available.name().into(),
        status: status.into(),
        reason: "Because".into(),
        message: message.into(),
        observed_generation: Some(1),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    let at = |second| Time(Timestamp::from_second(second).unwrap());
    let mut conditions = Vec::new();
    assert!(set_condition(&mut conditions, made("True", "a"), &at(1)));
    assert!(!set_condition(&mut conditions, made("True", "a"), &at(2)));
    assert!(set_condition(&mut conditions, made("True", "b"), &at(3)));
    let since = |conditions: &[Condition]| {
        condition(conditions, ConditionType::Available)
            .unwrap()
            .last_transition_time
            .clone()
    };
    assert_eq!(since(&conditions), at(1));
    assert!(set_condition(&mut conditions, made("False", "b"), &at(4)));
    assert_eq!(since(&conditions), at(4));
    assert_eq!(conditions.len(), 1);
}
