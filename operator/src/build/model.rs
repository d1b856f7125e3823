//! The model's files in a pod.

use k8s_openapi::api::core::v1::{
    EnvVar, HostPathVolumeSource, ImageVolumeSource, PersistentVolumeClaimVolumeSource, Volume,
    VolumeMount,
};
use lynx_crds::spec::{HuggingFace, Source};

use super::pod;

const VOLUME: &str = "model";
const FOLDER: &str = "/models";

/// Where an engine finds its model.
pub(super) struct Mounted {
    /// What the engine is told: a path, or a repository that it downloads itself.
    pub(super) path: String,
    pub(super) volume: Option<Volume>,
    pub(super) mount: Option<VolumeMount>,
    pub(super) env: Vec<EnvVar>,
}

/// The model of a spec. The CRD's rules see to it that there is one source.
pub(super) fn mounted(source: &Source) -> Mounted {
    let volume = Volume {
        name: VOLUME.into(),
        ..Volume::default()
    };
    if let Some(host) = &source.host_path {
        let name = host.path.trim_end_matches('/').rsplit('/').next();
        let path = inside(name.unwrap_or_default());
        let volume = Volume {
            host_path: Some(HostPathVolumeSource {
                path: host.path.clone(),
                ..HostPathVolumeSource::default()
            }),
            ..volume
        };
        return from_volume(volume, path.clone(), path);
    }
    if let Some(pvc) = &source.pvc {
        let volume = Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: pvc.claim_name.clone(),
                read_only: Some(true),
            }),
            ..volume
        };
        return from_volume(volume, FOLDER.into(), inside(&pvc.path));
    }
    if let Some(image) = &source.image {
        let volume = Volume {
            image: Some(ImageVolumeSource {
                reference: Some(image.reference.clone()),
                pull_policy: Some(image.pull_policy.name().into()),
            }),
            ..volume
        };
        return from_volume(volume, FOLDER.into(), inside(&image.path));
    }
    downloaded(source.hugging_face.as_ref())
}

fn inside(path: &str) -> String {
    if path.is_empty() {
        FOLDER.into()
    } else {
        format!("{FOLDER}/{path}")
    }
}

fn from_volume(volume: Volume, mount: String, path: String) -> Mounted {
    Mounted {
        path,
        volume: Some(volume),
        mount: Some(pod::mount(VOLUME, &mount, true)),
        env: Vec::new(),
    }
}

fn downloaded(repository: Option<&HuggingFace>) -> Mounted {
    let token = repository.and_then(|repository| repository.token_secret.clone());
    let token = token.map(|secret| pod::from_secret("HF_TOKEN", &secret, "token"));
    Mounted {
        path: repository.map_or_else(String::new, |repository| repository.repository.clone()),
        volume: None,
        mount: None,
        env: token.into_iter().collect(),
    }
}
