//! The part of a KV cache that comes first.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bits;

/// The anchor's mean width in bits for each element, and which bits those are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.mode != 'Fixed' || has(self.bits)")
        .message("anchor.mode Fixed needs anchor.bits, such as 4"),
    validation = Rule::new("self.mode != 'Adaptive' || !has(self.bits)")
        .message("anchor.bits is for mode Fixed: in mode Adaptive give minBits and maxBits"),
    validation = Rule::new("double(self.minBits) <= double(self.maxBits)")
        .message("anchor.minBits is more than maxBits"),
)]
pub struct Anchor {
    /// `Adaptive` (the default): the operator chooses the width by the links' rates, from `minBits` to `maxBits`. `Fixed`:
    /// always `bits`.
    #[serde(default)]
    pub mode: AnchorMode,
    /// The mean width in mode Fixed: from 1 to 8 bits in steps of 0.125, as `4` or, in quotes, `"3.5"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<Bits>,
    /// The least mean width in mode Adaptive; default: 2. The same values as `bits`.
    #[serde(default = "min_bits")]
    pub min_bits: Bits,
    /// The largest mean width in mode Adaptive; default: 6. The same values as `bits`.
    #[serde(default = "max_bits")]
    pub max_bits: Bits,
    /// Which bits the model needs first; default: the profile that comes with the agent, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

fn min_bits() -> Bits {
    Bits::from_bits(2).expect("2 lies between 1 and 8")
}

fn max_bits() -> Bits {
    Bits::from_bits(6).expect("6 lies between 1 and 8")
}

impl Default for Anchor {
    fn default() -> Self {
        Self {
            mode: AnchorMode::default(),
            bits: None,
            min_bits: min_bits(),
            max_bits: max_bits(),
            profile: None,
        }
    }
}

/// Who chooses the anchor's width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnchorMode {
    /// The operator.
    #[default]
    Adaptive,
    /// The user.
    Fixed,
}

/// A profile that `lynx calibrate` made of this model: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.configMap) != has(self.file)")
    .message("give anchor.profile as configMap or as file, one of the two"))]
pub struct Profile {
    /// A ConfigMap of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapProfile>,
    /// An absolute path in the agent's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("write an absolute path"))]
    pub file: Option<String>,
}

/// A profile in a ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapProfile {
    /// The ConfigMap's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it; default: profile.json.
    #[serde(default = "key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn key() -> String {
    "profile.json".into()
}
