//! The agent's configuration file.
//!
//! Written with types of this crate's own: the agent's belong to another layer. A test that knows both holds them
//! together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use lynx_crds::spec::{AnchorMode, Fidelity, Objective, TlsMode, TrafficClass, Transport};
use lynx_crds::{Bits, Period};
use serde::Serialize;

use super::names::{self, Role};
use super::{Inputs, agent, api_key, engine, generation, tls};
use crate::streams::{Key, doors};

/// How long an agent takes requests after its drain has begun: two readiness probes that fail, and the way of that news through
/// the endpoint slices to every node's proxy.
const GRACE: &str = "5s";

/// The file's name in the ConfigMap.
pub(super) const FILE: &str = "agent.yaml";

/// The file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentConfig {
    role: &'static str,
    deployment: Deployment,
    listen: Listen,
    engine: Engine,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<Operator>,
    transfer: Transfer,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
    drain: Drain,
    telemetry: Telemetry,
}

#[derive(Clone, Debug, Serialize)]
struct Deployment {
    name: String,
}

#[derive(Clone, Debug, Serialize)]
struct Listen {
    http: String,
    drain: String,
    peer: String,
    data: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Engine {
    socket: &'static str,
    shared_directory: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_file: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
struct Operator {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Transfer {
    objective: &'static str,
    transport: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma: Option<Rdma>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(flatten)]
    policy: Option<Policy>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rdma {
    #[serde(skip_serializing_if = "Option::is_none")]
    gid_index: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rails: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor: Option<Class>,
    #[serde(skip_serializing_if = "Option::is_none")]
    residual: Option<Class>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    traffic_class: u8,
}

/// What the operator's stream tells too, and what a lone agent starts with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    fidelity: &'static str,
    anchor: Anchor,
    max_draft_tokens: u32,
    allow_provisional: bool,
    deadline: Period,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Anchor {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bits: Option<Bits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_bits: Option<Bits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bits: Option<Bits>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tls {
    mode: &'static str,
    directory: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_name: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Drain {
    deadline: Period,
    grace: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Telemetry {
    #[serde(skip_serializing_if = "Option::is_none")]
    otlp_endpoint: Option<String>,
    sampling: f64,
    log_format: &'static str,
}

impl AgentConfig {
    pub(super) fn new(inputs: &Inputs<'_>, role: Role) -> Self {
        let spec = &inputs.object.spec;
        let url = inputs.config.agents_url();
        let otlp = inputs.otlp();
        Self {
            role: role.name(),
            deployment: Deployment {
                name: inputs.object.name_any(),
            },
            listen: Listen {
                http: any(agent::HTTP),
                drain: agent::drain_address(),
                peer: any(agent::PEER),
                data: any(agent::DATA),
            },
            engine: Engine {
                socket: agent::SOCKET,
                shared_directory: agent::SHARED,
                http: engine::http(inputs),
                api_key_file: api_key::file(inputs, role),
            },
            operator: (!url.is_empty()).then(|| operator(inputs, url)),
            transfer: transfer(inputs, role),
            tls: tls::secret_name(inputs.object).map(|_| Tls {
                mode: "all",
                directory: tls::FOLDER,
                // Of a user's certificates the first name is the deployment's.
                peer_name: (spec.transfer.tls.mode == TlsMode::OperatorCa)
                    .then(|| tls::identity(inputs.object)),
            }),
            drain: Drain {
                deadline: spec.transfer.deadlines.drain,
                grace: GRACE,
            },
            telemetry: Telemetry {
                otlp_endpoint: otlp.map(|(endpoint, _)| endpoint.to_owned()),
                sampling: otlp.map_or(1.0, |(_, percent)| f64::from(percent) / 100.0),
                log_format: "json",
            },
        }
    }

    /// A hash of what an agent reads only at its start. Where the operator's stream carries the policy, a change of it
    /// restarts nobody.
    pub(super) fn restart_key(&self) -> String {
        let mut fixed = self.clone();
        if fixed.operator.is_some() {
            fixed.transfer.policy = None;
        }
        generation::hash(&fixed)
    }

    /// One for each revision, so that a container that starts again in the middle of a rollout reads what it read before.
    pub(super) fn config_map(&self, inputs: &Inputs<'_>, role: Role, revision: &str) -> ConfigMap {
        let object = inputs.object;
        let mut labels = names::role_labels(object, role);
        labels.insert(names::REVISION.into(), revision.into());
        let text = serde_norway::to_string(self).unwrap_or_default();
        ConfigMap {
            metadata: names::metadata(object, names::of_revision(object, role, revision), labels),
            data: Some(BTreeMap::from([(FILE.to_owned(), text)])),
            ..ConfigMap::default()
        }
    }
}

/// Where the operator is, and with the operator's certificates by TLS, through this deployment's own door.
fn operator(inputs: &Inputs<'_>, url: String) -> Operator {
    let object = inputs.object;
    if object.spec.transfer.tls.mode != TlsMode::OperatorCa {
        return Operator {
            address: url,
            name: None,
        };
    }
    let key = Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    };
    Operator {
        address: match url.strip_prefix("http://") {
            Some(rest) => format!("https://{rest}"),
            None => url,
        },
        name: Some(doors::name(&key)),
    }
}

fn transfer(inputs: &Inputs<'_>, role: Role) -> Transfer {
    let transfer = &inputs.object.spec.transfer;
    let anchor = &transfer.anchor;
    let adaptive = anchor.mode == AnchorMode::Adaptive;
    let rdma = inputs.pool(role).rdma.as_ref();
    let rdma = rdma.filter(|_| transfer.transport != Transport::Tcp);
    Transfer {
        transport: match transfer.transport {
            Transport::Rdma => "rdma",
            Transport::Auto if rdma.is_some() => "auto",
            Transport::Auto | Transport::Tcp => "tcp",
        },
        rdma: rdma.map(|rdma| {
            let classes = rdma.traffic_class.as_ref();
            let class = |of: fn(&TrafficClass) -> Option<u8>| {
                let traffic_class = classes.and_then(of)?;
                Some(Class { traffic_class })
            };
            Rdma {
                gid_index: rdma.gid_index,
                rails: rdma.rails,
                anchor: class(|classes| classes.anchor),
                residual: class(|classes| classes.residual),
            }
        }),
        objective: match transfer.objective {
            Objective::FirstTokens => "first-tokens",
            Objective::Verified => "verified",
        },
        profile: anchor.profile.as_ref().and_then(|profile| {
            let mounted = profile.config_map.as_ref().map(|_| agent::PROFILE.into());
            mounted.or_else(|| profile.file.clone())
        }),
        policy: Some(Policy {
            fidelity: match transfer.fidelity {
                Fidelity::Exact => "exact",
                Fidelity::Int8 => "int8",
            },
            anchor: Anchor {
                mode: if adaptive { "adaptive" } else { "fixed" },
                bits: anchor.bits.filter(|_| !adaptive),
                min_bits: adaptive.then_some(anchor.min_bits),
                max_bits: adaptive.then_some(anchor.max_bits),
            },
            max_draft_tokens: transfer.max_draft_tokens,
            allow_provisional: transfer.allow_provisional,
            deadline: transfer.deadlines.transfer,
        }),
    }
}

fn any(port: u16) -> String {
    format!("0.0.0.0:{port}")
}
