//! What the NetworkPolicies let through, by a small evaluator of their rules against the objects that are built.
//!
//! The tests' node has no network that enforces policies, so this is about what they say and not about who obeys.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use super::*;
use crate::config::OperatorConfig;

type Labels = BTreeMap<String, String>;

/// One end of a connection.
struct End {
    namespace: &'static str,
    labels: Labels,
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    assert!(
        selector.match_expressions.is_none(),
        "this evaluator knows no expressions"
    );
    let wanted = selector.match_labels.iter().flatten();
    let mut wanted = wanted.map(|(key, value)| labels.get(key) == Some(value));
    wanted.all(|fits| fits)
}

/// Whether policies let `from` reach `port` of `to`: with a policy for `to`, what some rule names; without one, all.
fn lets(policies: &[NetworkPolicy], from: &End, to: &End, port: i32) -> bool {
    let of = policies.iter().filter_map(|policy| {
        let spec = policy.spec.as_ref()?;
        let there = policy.metadata.namespace.as_deref() == Some(to.namespace);
        let selector = spec.pod_selector.clone().unwrap_or_default();
        (there && selects(&selector, &to.labels)).then_some(spec)
    });
    let specs: Vec<_> = of.collect();
    if specs.is_empty() {
        return true;
    }
    let mut rules = specs.iter().flat_map(|spec| spec.ingress.iter().flatten());
    rules.any(|rule| {
        let at = |one: &NetworkPolicyPort| one.port == Some(IntOrString::Int(port));
        let ports = rule.ports.as_ref();
        let comes = |peer: &NetworkPolicyPeer| {
            assert!(peer.ip_block.is_none() && peer.namespace_selector.is_none());
            let pods = peer.pod_selector.as_ref();
            from.namespace == to.namespace && pods.is_some_and(|pods| selects(pods, &from.labels))
        };
        let peers = rule.from.as_ref();
        ports.is_none_or(|ports| ports.iter().any(at))
            && peers.is_none_or(|peers| peers.iter().any(comes))
    })
}

fn object(name: &str) -> lynx_crds::LynxDeployment {
    let object = json!({
        "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {
            "model": {"name": "smol", "source": {"hostPath": {"path": "/m.gguf"}}},
            "engine": {"type": "Custom", "image": "x", "ports": [{"name": "debug", "containerPort": 9999}]},
        },
    });
    serde_json::from_value(object).unwrap()
}

/// The policies of a deployment, as they are applied.
fn policies(name: &str) -> Vec<NetworkPolicy> {
    let (object, config) = (object(name), OperatorConfig::default());
    let inputs = Inputs {
        object: &object,
        config: &config,
        prefill: 1,
        decode: 1,
        certificates: None,
    };
    let built = super::super::build(&inputs).unwrap();
    let ours = built
        .into_iter()
        .filter(|one| one.resource.kind == "NetworkPolicy");
    ours.map(|one| serde_json::from_value(one.value).unwrap())
        .collect()
}

fn pod(namespace: &'static str, name: &str, role: Role) -> End {
    End {
        namespace,
        labels: names::role_labels(&object(name), role),
    }
}

#[test]
fn transfers_come_from_the_deployments_own_decode_pods_and_http_from_anybody() {
    let all: Vec<_> = ["small", "large"].into_iter().flat_map(policies).collect();
    assert_eq!(all.len(), 4);
    let (prefill, decode) = (
        pod("team", "small", Role::Prefill),
        pod("team", "small", Role::Decode),
    );
    let client = End {
        namespace: "elsewhere",
        labels: Labels::new(),
    };
    let others = [
        pod("team", "large", Role::Decode),
        pod("team", "small", Role::Prefill),
        pod("elsewhere", "small", Role::Decode),
        End {
            namespace: "team",
            labels: Labels::new(),
        },
        client,
    ];
    for port in [agent::PEER, agent::DATA] {
        assert!(lets(&all, &decode, &prefill, port.into()), "{port}");
        for (index, other) in others.iter().enumerate() {
            assert!(!lets(&all, other, &prefill, port.into()), "{index}: {port}");
        }
        // Nobody transfers to a decode pod.
        assert!(!lets(&all, &prefill, &decode, port.into()), "{port}");
    }
    for to in [&prefill, &decode] {
        for from in &others {
            assert!(lets(&all, from, to, agent::HTTP.into()));
            // The engine's own port is what its spec opens.
            assert!(lets(&all, from, to, 9999));
            // The order to drain comes from the kubelet, to which policies don't apply; and nothing else is open.
            assert!(!lets(&all, from, to, 8081));
            assert!(!lets(&all, from, to, 22));
        }
    }
}

#[test]
fn a_pod_that_no_policy_selects_is_open_to_all() {
    let all = policies("small");
    let (from, to) = (
        pod("team", "small", Role::Prefill),
        pod("team", "large", Role::Prefill),
    );
    assert!(lets(&all, &from, &to, agent::DATA.into()));
}
