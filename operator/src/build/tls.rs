//! The agents' certificates in a pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{KeyToPath, Pod, Secret, SecretVolumeSource, Volume};
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
        TlsMode::OperatorCa => Some(issued(object)),
        TlsMode::Secret => tls.secret_name.clone(),
    }
}

/// Whether the agent of a pod that was made for another spec can still come to the operator: it goes on by TLS, or in clear, as
/// it began, and deployments take one of these.
pub fn can_come(object: &LynxDeployment, pod: &Pod) -> bool {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mounted = volumes
        .filter(|volume| is_certificates(volume))
        .find_map(|volume| volume.secret.as_ref()?.secret_name.clone());
    let by_tls = object.spec.transfer.tls.mode == TlsMode::OperatorCa;
    mounted == secret_name(object) || (mounted == Some(issued(object))) == by_tls
}

/// Whether a volume has an agent's certificates.
pub fn is_certificates(volume: &Volume) -> bool {
    volume.name == VOLUME
}

fn issued(object: &LynxDeployment) -> String {
    format!("{}-tls", object.name_any())
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
        metadata: names::metadata(object, issued(object), names::labels(object)),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(tls: &Value) -> LynxDeployment {
        let object = json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment", "metadata": {"name": "smol"},
            "spec": {
                "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
                "engine": {"type": "Embedded"},
                "transfer": {"tls": tls},
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn pod(secret: Option<String>) -> Pod {
        let volume = secret.map(|name| json!({"name": "tls", "secret": {"secretName": name}}));
        let volumes = Vec::from_iter(volume);
        serde_json::from_value(json!({"spec": {"containers": [], "volumes": volumes}})).unwrap()
    }

    #[test]
    fn agents_go_on_as_they_began_and_can_come_where_that_is_still_taken() {
        let clear = json!({"mode": "Disabled"});
        let others = json!({"mode": "Secret", "secretName": "mine"});
        // Somebody else's, by the name that the operator's would have.
        let confusing = json!({"mode": "Secret", "secretName": "smol-tls"});
        let ours = json!({"mode": "OperatorCA"});
        for (then, now, can) in [
            (&clear, &clear, true),
            (&clear, &others, true),
            (&others, &clear, true),
            (&confusing, &confusing, true),
            (&ours, &ours, true),
            (&clear, &ours, false),
            (&others, &ours, false),
            (&ours, &clear, false),
            (&ours, &others, false),
        ] {
            let pod = pod(secret_name(&object(then)));
            assert_eq!(can_come(&object(now), &pod), can, "{then} {now}");
        }
    }
}
