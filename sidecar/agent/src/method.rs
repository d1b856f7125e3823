//! How KV travels.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the KV cache travels from the prefill to the decode node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// As it is: 16 bits an element. The reference for every other method's output.
    Bf16,
    /// 8 bits an element with one scale for a token and head; decoding waits for all of it.
    Int8,
    /// 4 bits an element with one scale for a token and head; decoding waits for all of it.
    Int4,
    /// Lynx up to its eighth bit: drafts on the anchor, verifies against the 8-bit KV.
    LynxInt8,
    /// Lynx with the exact tail: drafts on the anchor, verifies against the bit-identical BF16 KV.
    LynxExact,
}

impl Method {
    /// All methods, in the order in which people read them.
    pub const ALL: [Self; 5] = [
        Self::Bf16,
        Self::Int8,
        Self::Int4,
        Self::LynxInt8,
        Self::LynxExact,
    ];

    /// The name in JSON and on the command line.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::LynxInt8 => "lynx-int8",
            Self::LynxExact => "lynx-exact",
        }
    }

    /// Whether this method drafts on an anchor and verifies later.
    pub const fn drafts(self) -> bool {
        matches!(self, Self::LynxInt8 | Self::LynxExact)
    }
}

/// The name as people read it.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bf16 => "BF16",
            Self::Int8 => "INT8",
            Self::Int4 => "INT4",
            Self::LynxInt8 => "Lynx int8",
            Self::LynxExact => "Lynx exact",
        })
    }
}
