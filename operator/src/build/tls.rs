//! The agents' certificates in a pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{KeyToPath, Secret, SecretVolumeSource, Volume};
use kube::ResourceExt as _;
use lynx_crds::LynxDeployment;
use lynx_crds::spec::TlsMode;

use super::Inputs;
use super::names;
use crate::certificates::State;

/// The volume of every pod with certificates.
pub(super) const VOLUME: &str = "tls";
/// Where it is mounted.
pub(super) const FOLDER: &str = "/etc/lynx-tls";

const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Who a deployment's agents are, as their certificates say.
pub fn identity(object: &LynxDeployment) -> String {
    format!(
        "spiffe://cluster.local/ns/{}/lynx/{}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    )
}

/// The Secret that pods mount; `None` where nothing is encrypted.
pub fn secret_name(object: &LynxDeployment) -> Option<String> {
    let tls = &object.spec.transfer.tls;
    match tls.mode {
        TlsMode::Disabled | TlsMode::CertManager => None,
        TlsMode::OperatorCa => Some(format!("{}-tls", object.name_any())),
        TlsMode::Secret => tls.secret_name.clone(),
    }
}

/// The Secret of certificates that the operator issued.
pub(super) fn secret(object: &LynxDeployment, state: &State) -> Secret {
    let texts = [&state.leaf.certificate, &state.leaf.key, &state.bundle()];
    let data: BTreeMap<_, _> = FILES
        .into_iter()
        .zip(texts)
        .map(|(file, text)| (file.to_owned(), ByteString(text.clone().into_bytes())))
        .collect();
    Secret {
        metadata: names::metadata(
            object,
            format!("{}-tls", object.name_any()),
            names::labels(object),
        ),
        type_: Some("kubernetes.io/tls".into()),
        data: Some(data),
        ..Secret::default()
    }
}

/// The three files, of a Secret that may have more.
pub(super) fn volume(inputs: &Inputs<'_>) -> Option<Volume> {
    let name = secret_name(inputs.object)?;
    let items = FILES.map(|file| KeyToPath {
        key: file.into(),
        path: file.into(),
        mode: None,
    });
    Some(Volume {
        name: VOLUME.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name),
            // Its group's too: the kubelet gives the files to root and to the pod's group.
            default_mode: Some(0o440),
            items: Some(items.into()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    })
}
