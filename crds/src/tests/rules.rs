//! Every rule refuses what it should, and only that.

mod autoscaling;

use std::collections::BTreeSet;

use kube::core::cel::Validator;
use serde_json::{Value, json};

use super::structure::schema;
use super::{parse, with};
use crate::LynxDeployment;

/// Changes that a rule accepts, changes that it refuses, and a part of the message that the user sees.
struct Case {
    accepted: Vec<(&'static str, Value)>,
    refused: Vec<(&'static str, Value)>,
    message: &'static str,
}

fn case<const A: usize, const R: usize>(
    accepted: [(&'static str, Value); A],
    refused: [(&'static str, Value); R],
    message: &'static str,
) -> Case {
    Case {
        accepted: accepted.into(),
        refused: refused.into(),
        message,
    }
}

const NAME: &str = "/metadata/name";
const SOURCE: &str = "/spec/model/source";
const ENGINE: &str = "/spec/engine";
const GPUS: &str = "/spec/decode/gpus";
const RDMA: &str = "/spec/prefill/rdma";
const ANCHOR: &str = "/spec/transfer/anchor";
const TLS: &str = "/spec/transfer/tls";
const TOPOLOGY: &str = "/spec/topology";
const OTLP: &str = "/spec/observability/otlp";

fn vllm() -> (&'static str, Value) {
    (ENGINE, json!({"type": "VLLM", "image": "vllm"}))
}

fn cases() -> Vec<Case> {
    let mut all = object_and_model();
    all.extend(engine());
    all.extend(devices());
    all.extend(network_cards());
    all.extend(autoscaling::targets());
    all.extend(autoscaling::bounds());
    all.extend(surroundings());
    all.extend(transfer());
    all
}

fn object_and_model() -> Vec<Case> {
    let forty = "a".repeat(40);
    let path = |path: &str| json!({"hostPath": {"path": path}});
    let pvc = |path: &str| json!({"pvc": {"claimName": "c", "path": path}});
    let image = |path: &str| json!({"image": {"reference": "r", "path": path}});
    let hub = |repository: &str| json!({"huggingFace": {"repository": repository}});
    vec![
        case(
            [(NAME, json!(forty))],
            [(NAME, json!(format!("{forty}a")))],
            "the name is too long",
        ),
        case(
            [(NAME, json!("a-1"))],
            [(NAME, json!("1-a"))],
            "must start with a lower-case letter",
        ),
        case(
            [(SOURCE, pvc("a/b.gguf"))],
            [(
                SOURCE,
                json!({"hostPath": {"path": "/a"}, "pvc": {"claimName": "c"}}),
            )],
            "exactly one source",
        ),
        case(
            [(SOURCE, path("/a"))],
            [(SOURCE, path("a"))],
            "an absolute path of the node",
        ),
        case(
            [(SOURCE, pvc("a"))],
            [(SOURCE, pvc("/a"))],
            "a path inside the volume",
        ),
        case(
            [(SOURCE, image("a"))],
            [(SOURCE, image("../a"))],
            "a path inside the image",
        ),
        case(
            [(SOURCE, hub("Owner/name-0.5B")), vllm()],
            [(SOURCE, hub("name")), vllm()],
            "write the repository as owner/name",
        ),
        case(
            [(SOURCE, hub("a/b")), vllm()],
            [(SOURCE, hub("a/b"))],
            "the embedded engine downloads nothing",
        ),
    ]
}

fn engine() -> Vec<Case> {
    let engine = |changes: Value| {
        let mut engine = json!({"type": "Embedded"});
        engine
            .as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        (ENGINE, engine)
    };
    let port = |name: &str| engine(json!({"ports": [{"name": name, "containerPort": 1}]}));
    vec![
        case(
            [engine(json!({"type": "Custom", "image": "mine:1"}))],
            [engine(json!({"type": "Custom"}))],
            "engine.image is needed",
        ),
        case(
            [engine(
                json!({"type": "VLLM", "image": "v", "tensorParallelSize": 2}),
            )],
            [engine(json!({"tensorParallelSize": 2}))],
            "leave engine.tensorParallelSize at 1",
        ),
        case(
            [engine(
                json!({"type": "Custom", "image": "mine:1", "http": {}}),
            )],
            [engine(json!({"http": {}}))],
            "the embedded engine has no HTTP server",
        ),
        case([port("debug-1")], [port("Debug")], "a port's name has"),
    ]
}

fn devices() -> Vec<Case> {
    vec![
        case(
            [(GPUS, json!({"resourceClaimTemplate": "g"})), vllm()],
            [
                (
                    GPUS,
                    json!({"resourceClaimTemplate": "g", "resourceName": "a/b"}),
                ),
                vllm(),
            ],
            "say where the GPUs come from",
        ),
        case(
            [
                (GPUS, json!({"resourceName": "nvidia.com/gpu", "count": 2})),
                vllm(),
            ],
            [
                (GPUS, json!({"resourceClaimTemplate": "g", "count": 2})),
                vllm(),
            ],
            "leave out gpus.count",
        ),
        case(
            [
                (
                    GPUS,
                    json!({"resourceClaimTemplate": "g", "request": "gpu"}),
                ),
                vllm(),
            ],
            [
                (
                    GPUS,
                    json!({"resourceName": "nvidia.com/gpu", "request": "gpu"}),
                ),
                vllm(),
            ],
            "it needs gpus.resourceClaimTemplate",
        ),
        case(
            [
                (GPUS, json!({"resourceName": "nvidia.com/mig-1g.5gb"})),
                vllm(),
            ],
            [(GPUS, json!({"resourceName": "gpu"})), vllm()],
            "such as nvidia.com/gpu",
        ),
        case(
            [
                (
                    ENGINE,
                    json!({"type": "VLLM", "image": "v", "tensorParallelSize": 2}),
                ),
                (GPUS, json!({"resourceName": "nvidia.com/gpu", "count": 2})),
            ],
            [
                (
                    ENGINE,
                    json!({"type": "VLLM", "image": "v", "tensorParallelSize": 2}),
                ),
                (GPUS, json!({"resourceName": "nvidia.com/gpu"})),
            ],
            "more than the GPUs of a pod",
        ),
        case(
            [(GPUS, json!({"resourceName": "nvidia.com/gpu"})), vllm()],
            [(GPUS, json!({"resourceName": "nvidia.com/gpu"}))],
            "the embedded engine runs on CPUs",
        ),
    ]
}

fn network_cards() -> Vec<Case> {
    let networks = |name: &str| (RDMA, json!({"resourceName": "rdma/a", "networks": [name]}));
    let tcp = ("/spec/transfer/transport", json!("TCP"));
    vec![
        case(
            [tcp.clone(), (RDMA, json!({"resourceName": "rdma/a"}))],
            [(RDMA, json!({"resourceName": "rdma/a"}))],
            "go together",
        ),
        case(
            [
                (RDMA, json!({"resourceName": "rdma/hca_shared_devices_a"})),
                tcp.clone(),
            ],
            [(RDMA, json!({}))],
            "say where the network card comes from",
        ),
        case(
            [
                (
                    RDMA,
                    json!({"resourceClaimTemplate": "n", "request": "nic"}),
                ),
                tcp.clone(),
            ],
            [(RDMA, json!({"resourceName": "rdma/a", "request": "nic"}))],
            "it needs rdma.resourceClaimTemplate",
        ),
        case(
            [(RDMA, json!({"resourceName": "rdma/a"})), tcp.clone()],
            [(RDMA, json!({"resourceName": "rdma"}))],
            "such as rdma/hca_shared_devices_a",
        ),
        case(
            [networks("ns/rail-0"), tcp.clone()],
            [networks("a/b/c")],
            "a NetworkAttachmentDefinition",
        ),
    ]
}

fn surroundings() -> Vec<Case> {
    vec![
        case(
            [(
                TOPOLOGY,
                json!({"mode": "Required", "nodeLabel": "topology.kubernetes.io/rack"}),
            )],
            [(TOPOLOGY, json!({"mode": "Preferred"}))],
            "topology.nodeLabel is needed",
        ),
        case(
            [(TOPOLOGY, json!({"nodeLabel": "rack"}))],
            [(TOPOLOGY, json!({"nodeLabel": "my rack"}))],
            "the key of a node label",
        ),
        case(
            [(OTLP, json!({"endpoint": "http://jaeger:4317"}))],
            [(OTLP, json!({"endpoint": "jaeger:4317"}))],
            "write the receiver as a URL",
        ),
    ]
}

fn transfer() -> Vec<Case> {
    let rdma = json!({"resourceName": "rdma/a"});
    let transport = ("/spec/transfer/transport", json!("RDMA"));
    let split = ("/spec/transfer/split", json!("Agent"));
    let profile = |profile: Value| (ANCHOR, json!({"profile": profile}));
    let issuer =
        |kind: &str| json!({"mode": "CertManager", "issuerRef": {"name": "i", "kind": kind}});
    let promised = |rate: &str| ("/spec/transfer/promisedRate", json!({"same": rate}));
    vec![
        case(
            [promised("100G")],
            [promised("0")],
            "more than nothing, such as 100G",
        ),
        case(
            [(TLS, json!({"mode": "Secret", "secretName": "s"}))],
            [(TLS, json!({"mode": "OperatorCA", "secretName": "s"}))],
            "tls.secretName goes with",
        ),
        case(
            [
                transport.clone(),
                (RDMA, rdma.clone()),
                ("/spec/decode/rdma", rdma.clone()),
            ],
            [transport, (RDMA, rdma)],
            "needs prefill.rdma and decode.rdma",
        ),
        case(
            [
                split.clone(),
                (GPUS, json!({"resourceClaimTemplate": "g"})),
                vllm(),
            ],
            [
                split,
                (GPUS, json!({"resourceName": "nvidia.com/gpu"})),
                vllm(),
            ],
            "give engine and agent different GPUs",
        ),
        case(
            [(ANCHOR, json!({"mode": "Fixed", "bits": 4}))],
            [(ANCHOR, json!({"mode": "Fixed"}))],
            "Fixed needs anchor.bits",
        ),
        case(
            [(ANCHOR, json!({"mode": "Fixed", "bits": "3.5"}))],
            [(ANCHOR, json!({"bits": 4}))],
            "anchor.bits is for mode Fixed",
        ),
        case(
            [(ANCHOR, json!({"minBits": "3.5", "maxBits": 4}))],
            [(ANCHOR, json!({"minBits": 4, "maxBits": "3.875"}))],
            "anchor.minBits is more than maxBits",
        ),
        case(
            [profile(json!({"configMap": {"name": "p"}}))],
            [profile(json!({"configMap": {"name": "p"}, "file": "/p"}))],
            "one of the two",
        ),
        case(
            [profile(json!({"file": "/etc/profile.json"}))],
            [profile(json!({"file": "profile.json"}))],
            "write an absolute path",
        ),
        case(
            [(TLS, issuer("ClusterIssuer"))],
            [(TLS, json!({"mode": "CertManager"}))],
            "give both or neither",
        ),
        case(
            [(TLS, issuer("Issuer"))],
            [(TLS, issuer("issuer"))],
            "Issuer or ClusterIssuer",
        ),
    ]
}

/// What [`LynxDeployment::validate_cel`] says, with the schema made once.
fn messages(schema: &Value, deployment: &LynxDeployment) -> Vec<String> {
    let object = serde_json::to_value(deployment).unwrap();
    let Err(errors) = Validator::new().validate(schema, &object, None) else {
        return Vec::new();
    };
    errors.iter().map(|error| error.message.clone()).collect()
}

#[test]
fn every_rule_accepts_what_is_right_and_says_what_is_wrong() {
    let schema = schema();
    for Case {
        accepted,
        refused,
        message,
    } in cases()
    {
        let heard = messages(&schema, &parse(with(&accepted)));
        assert!(heard.is_empty(), "{accepted:?} is refused: {heard:?}");
        let heard = messages(&schema, &parse(with(&refused)));
        assert!(
            heard.iter().any(|heard| heard.contains(message)),
            "{refused:?} should be refused because {message:?}, not {heard:?}"
        );
    }
}

/// Rules that the types' own parsers or the next test cover.
const ELSEWHERE: [&str; 3] = [
    "write a time longer than nothing",
    "write a width from 1 to 8 bits",
    "engine.type can't be changed",
];

#[test]
fn no_rule_is_without_a_case() {
    let mut rules = BTreeSet::new();
    collect(&serde_json::to_value(crate::crd()).unwrap(), &mut rules);
    let covered: Vec<&str> = cases().iter().map(|case| case.message).collect();
    let covered: Vec<&str> = covered.into_iter().chain(ELSEWHERE).collect();
    rules.retain(|rule| !covered.iter().any(|message| rule.contains(message)));
    assert!(rules.is_empty(), "rules that no case refuses: {rules:#?}");
}

fn collect(value: &Value, messages: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::Array(rules)) = object.get("x-kubernetes-validations") {
                let texts = rules.iter().map(|rule| rule["message"].as_str());
                messages.extend(texts.map(|text| text.expect("every rule has a message").into()));
            }
            object.values().for_each(|value| collect(value, messages));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, messages)),
        _ => {}
    }
}

#[test]
fn the_engine_s_type_stays_what_it_was() {
    let embedded = parse(with(&[]));
    let vllm = parse(with(&[vllm()]));
    assert!(embedded.validate_cel_update(&embedded).is_ok());
    let errors = vllm.validate_cel_update(&embedded).unwrap_err();
    assert!(
        errors[0].message.contains("engine.type can't be changed"),
        "{errors:?}"
    );
}
