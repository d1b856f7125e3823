//! What must be the same on both nodes.

use lynx_engine::Model;
use lynx_kernels::{CODEC_VERSION, Profile};
use lynx_transport::PeerInfo;

use crate::lab::shape_of;

/// What this node says of itself when a link comes up: nodes that differ in any of it refuse each other.
pub(super) fn info(name: &str, model: &Model, profile: &Profile) -> PeerInfo {
    let shape = shape_of(model);
    PeerInfo::new(name)
        .with("codec", &CODEC_VERSION.to_string())
        .with("model", &hex(&model.fingerprint().0[..8]))
        .with(
            "layout",
            &format!(
                "{} layers x {} heads x {} channels",
                shape.layers, shape.kv_heads, shape.head_dim
            ),
        )
        .with("profile", &profile_name(profile))
}

/// The profile's name in a descriptor: enough of its hash to tell profiles apart, and to read aloud.
pub(super) fn profile_name(profile: &Profile) -> String {
    format!("{} ({})", profile.name(), hex(&profile.hash().0[..8]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
