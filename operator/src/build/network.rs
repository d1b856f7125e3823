//! Who reaches a role's pods, and by which name.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use super::names::{self, Role};
use super::{Inputs, agent};

/// Decode: what clients talk to, under the deployment's own name. Prefill: a headless one, for people and metrics; decode
/// agents learn of prefill agents from the operator.
pub(super) fn service(inputs: &Inputs<'_>, role: Role) -> Service {
    let object = inputs.object;
    let (name, headless, ports) = match role {
        Role::Decode => (object.name_any(), None, vec![("http", 80, "http")]),
        Role::Prefill => (
            names::of_role(object, role),
            Some("None".into()),
            vec![
                ("http", agent::HTTP, "http"),
                ("peer", agent::PEER, "peer"),
                ("data", agent::DATA, "data"),
            ],
        ),
    };
    let ports = ports.into_iter().map(|(name, port, target)| ServicePort {
        name: Some(name.into()),
        port: port.into(),
        target_port: Some(IntOrString::String(target.into())),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    });
    Service {
        metadata: names::metadata(object, name, names::role_labels(object, role)),
        spec: Some(ServiceSpec {
            cluster_ip: headless,
            selector: Some(names::selected(object, role)),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Anyone reaches the HTTP port and the engine's own ports; transfers come from this deployment's decode pods only.
pub(super) fn policy(inputs: &Inputs<'_>, role: Role) -> NetworkPolicy {
    let object = inputs.object;
    let engine = &object.spec.engine.ports;
    let engine = engine.iter().map(|port| i32::from(port.container_port));
    let open = NetworkPolicyIngressRule {
        from: None,
        ports: Some(
            std::iter::once(agent::HTTP.into())
                .chain(engine)
                .map(tcp)
                .collect(),
        ),
    };
    let transfers = (role == Role::Prefill).then(|| NetworkPolicyIngressRule {
        from: Some(vec![NetworkPolicyPeer {
            pod_selector: Some(names::selector(object, Role::Decode)),
            ..NetworkPolicyPeer::default()
        }]),
        ports: Some(vec![tcp(agent::PEER.into()), tcp(agent::DATA.into())]),
    });
    NetworkPolicy {
        metadata: names::metadata(
            object,
            names::of_role(object, role),
            names::role_labels(object, role),
        ),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(names::selector(object, role)),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(std::iter::once(open).chain(transfers).collect()),
            egress: None,
        }),
    }
}

fn tcp(port: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".into()),
        end_port: None,
    }
}

#[cfg(test)]
mod tests;
