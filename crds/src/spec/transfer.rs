//! How KV caches travel.

mod anchor;
mod tls;

pub use anchor::{Anchor, AnchorMode, ConfigMapProfile, Profile};
pub use tls::{IssuerRef, Tls, TlsMode};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Period;
use crate::schema::bare;

/// How KV caches travel from prefill to decode pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    /// `Auto` (the default): RDMA where both pods have it, else TCP. `RDMA`: that or none. `TCP`: that.
    #[serde(default)]
    pub transport: Transport,
    /// What arrives in the end. `Exact` (the default): the very BF16 bits. `Int8`: eight bits an element, which is half
    /// the bytes.
    #[serde(default)]
    pub fidelity: Fidelity,
    /// What the anchor's width is chosen for. `FirstTokens` (the default): an early first drafted token. `Verified`: the
    /// least time until a run of tokens is verified.
    #[serde(default)]
    pub objective: Objective,
    /// Whether a client may ask for provisional tokens, which can be retracted; default: false.
    #[serde(default)]
    pub allow_provisional: bool,
    /// The anchor: the part that comes first.
    #[serde(default)]
    pub anchor: Anchor,
    /// How many tokens may be drafted on an anchor before they are verified; default: 64. 0: nothing is drafted.
    #[serde(default = "max_draft_tokens")]
    #[schemars(range(min = 0, max = 64))]
    pub max_draft_tokens: u32,
    /// When to give up.
    #[serde(default)]
    pub deadlines: Deadlines,
    /// Who splits KV blocks into anchor and residual. `Auto` (the default): the agent, unless a device plugin gives the
    /// GPUs to the engine alone. `Agent`, `Engine`: that one.
    #[serde(default)]
    pub split: Split,
    /// Encryption between agents; default: none.
    #[serde(default)]
    pub tls: Tls,
    /// What the network is said to carry between two pods; links that carry less than half of it are told in `LinkReady`. Default:
    /// nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised_rate: Option<PromisedRate>,
}

/// Bits per second between two pods, by class of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromisedRate {
    /// Within one place of `spec.topology.nodeLabel`, such as `100G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<Quantity>")]
    #[x_kube(validation = Rule::new("quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("write a rate in bits per second that is more than nothing, such as 100G"))]
    pub same: Option<Quantity>,
    /// Between two places, and where places aren't known; default there: what `same` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bare::<Quantity>")]
    #[x_kube(validation = Rule::new("quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("write a rate in bits per second that is more than nothing, such as 100G"))]
    pub cross: Option<Quantity>,
}

const fn max_draft_tokens() -> u32 {
    64
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            fidelity: Fidelity::default(),
            objective: Objective::default(),
            allow_provisional: false,
            anchor: Anchor::default(),
            max_draft_tokens: max_draft_tokens(),
            deadlines: Deadlines::default(),
            split: Split::default(),
            tls: Tls::default(),
            promised_rate: None,
        }
    }
}

/// When to give up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deadlines {
    /// A transfer that is not complete by then is cancelled, and the decode engine computes the prompt itself; default:
    /// 30s.
    #[serde(default = "transfer_deadline")]
    pub transfer: Period,
    /// A pod that is to go has this long to finish what is in flight; default: 1m.
    #[serde(default = "drain_deadline")]
    pub drain: Period,
}

const fn transfer_deadline() -> Period {
    Period::from_secs(30)
}

const fn drain_deadline() -> Period {
    Period::from_secs(60)
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            transfer: transfer_deadline(),
            drain: drain_deadline(),
        }
    }
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    /// RDMA where both pods have it, else TCP.
    #[default]
    Auto,
    /// RDMA or nothing.
    #[serde(rename = "RDMA")]
    Rdma,
    /// TCP.
    #[serde(rename = "TCP")]
    Tcp,
}

/// What arrives in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fidelity {
    /// The very BF16 bits.
    #[default]
    Exact,
    /// Eight bits an element.
    Int8,
}

/// What the anchor's width is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Objective {
    /// An early first drafted token.
    #[default]
    FirstTokens,
    /// The least time until a run of tokens is verified.
    Verified,
}

/// Who splits KV blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Split {
    /// The agent where it can.
    #[default]
    Auto,
    /// The agent.
    Agent,
    /// The engine.
    Engine,
}
