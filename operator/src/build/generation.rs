//! The hash of what decides whether two pods fit together.

use std::fmt::Write as _;

use lynx_crds::LynxDeploymentSpec;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The version of the bit-plane codec that this release's agents speak.
pub const CODEC_VERSION: u32 = 1;

/// Ten hex digits. Covers the model, the engine and everything that its KV layout may follow from, the codec and the
/// profile; not replicas or resources, so that scaling never splits a deployment in two.
pub fn generation(spec: &LynxDeploymentSpec) -> String {
    let engine = &spec.engine;
    hash(&json!({
        "model": spec.model,
        "engine": [engine.type_, engine.image, engine.args, engine.env, engine.tensor_parallel_size],
        "env": [environment(spec.prefill.pool.template.as_ref()), environment(spec.decode.pool.template.as_ref())],
        "split": spec.transfer.split,
        "profile": spec.transfer.anchor.profile,
        "codec": CODEC_VERSION,
        // In clear and encrypted agents don't understand each other.
        "tls": spec.transfer.tls,
    }))
}

fn environment(template: Option<&lynx_crds::spec::Template>) -> serde_json::Value {
    // A pool without a template and one whose template has no variables are the same.
    json!(template.map_or(&[][..], |template| &template.env))
}

/// Ten hex digits of a value's JSON.
pub(crate) fn hash(value: &impl Serialize) -> String {
    // Maps are ordered, so equal values have equal texts.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(&text);
    digest.iter().take(5).fold(String::new(), |mut hex, byte| {
        // Writing to a String can't fail.
        write!(hex, "{byte:02x}").ok();
        hex
    })
}
