//! The API key of an engine's own server, for the agents that ask it on nobody's behalf.

use k8s_openapi::api::core::v1::{KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use lynx_crds::spec::ApiKeySecret;

use super::names::Role;
use super::{Inputs, pod};

/// The volume.
const VOLUME: &str = "engine-api-key";
const FOLDER: &str = "/etc/lynx-engine";
const FILE: &str = "api-key";
/// What the agent is told.
const PATH: &str = "/etc/lynx-engine/api-key";

/// Decode agents have their clients' keys.
fn secret<'a>(inputs: &Inputs<'a>, role: Role) -> Option<&'a ApiKeySecret> {
    let http = inputs.object.spec.engine.http.as_ref();
    http.filter(|_| role == Role::Prefill)?
        .api_key_secret
        .as_ref()
}

/// Where the agent finds the key; `None` where it needs none.
pub(super) fn file(inputs: &Inputs<'_>, role: Role) -> Option<&'static str> {
    secret(inputs, role).map(|_| PATH)
}

/// What of the pod's volumes is the agent's. The folder is mounted, not the file: another key comes without a restart.
pub(super) fn mount(inputs: &Inputs<'_>, role: Role) -> Option<VolumeMount> {
    secret(inputs, role).map(|_| pod::mount(VOLUME, FOLDER, true))
}

/// The key, out of a Secret that may have more.
pub(super) fn volume(inputs: &Inputs<'_>, role: Role) -> Option<Volume> {
    let secret = secret(inputs, role)?;
    Some(Volume {
        name: VOLUME.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.name.clone()),
            // As with certificates: the pod's group reads it.
            default_mode: Some(0o440),
            items: Some(vec![KeyToPath {
                key: secret.key.clone(),
                path: FILE.into(),
                mode: None,
            }]),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    })
}
