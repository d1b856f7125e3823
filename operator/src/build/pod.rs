//! The pod of a role.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, EmptyDirVolumeSource, EnvVar, EnvVarSource, KeyToPath,
    LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretKeySelector, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lynx_crds::spec::{ConfigMapProfile, Template};

use super::agent_config::AgentConfig;
use super::names::{self, Role};
use super::placement;
use super::{Inputs, agent, api_key, devices, engine, generation, model, tls};

/// The volumes of every pod.
pub(super) const SHARED_VOLUME: &str = "lynx";
pub(super) const CONFIG_VOLUME: &str = "agent-config";
pub(super) const PROFILE_VOLUME: &str = "anchor-profile";
pub(super) const TMP_VOLUME: &str = "tmp";

/// A hash of the configuration that an agent reads only at its start.
const CONFIG_HASH: &str = "lynx.dev/agent-config";
/// The user of Lynx's images.
const USER: i64 = 65532;
/// After the drain's deadline: for the engine and the agent to stop.
const STOPPING: i64 = 30;
/// The shared memory of a pod whose engine has no memory limit.
const SHARED_MEMORY: &str = "2Gi";

/// The template of a role's pods. `revision` is its own hash, taken where it is still empty.
pub(super) fn template(
    inputs: &Inputs<'_>,
    role: Role,
    config: &AgentConfig,
    revision: &str,
) -> PodTemplateSpec {
    let object = inputs.object;
    let template = inputs.pool(role).template.clone().unwrap_or_default();
    let mut labels = names::role_labels(object, role);
    labels.insert(
        names::GENERATION.into(),
        generation::generation(&object.spec),
    );
    labels.insert(names::REVISION.into(), revision.into());
    let mut annotations = template.annotations.clone();
    devices::attach(inputs, role, &mut annotations);
    annotations.insert(CONFIG_HASH.into(), config.restart_key());
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(spec(inputs, role, template, revision)),
    }
}

fn spec(inputs: &Inputs<'_>, role: Role, template: Template, revision: &str) -> PodSpec {
    let model = model::mounted(&inputs.object.spec.model.source);
    let claims = devices::claims(inputs, role);
    let drain = inputs.object.spec.transfer.deadlines.drain.duration();
    let drain = i64::try_from(drain.as_secs()).unwrap_or(i64::MAX - STOPPING);
    let config = names::of_revision(inputs.object, role, revision);
    let mut volumes = volumes(inputs, config, &template, model.volume.clone());
    volumes.extend(api_key::volume(inputs, role));
    PodSpec {
        init_containers: Some(vec![agent::container(inputs, role)]),
        containers: vec![engine::container(inputs, role, &model)],
        service_account_name: Some(kube::ResourceExt::name_any(inputs.object)),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(drain + STOPPING),
        share_process_namespace: devices::share_gpu_memory(inputs, role).then_some(true),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        resource_claims: (!claims.is_empty()).then_some(claims),
        volumes: Some(volumes),
        image_pull_secrets: pull_secrets(inputs, &template),
        node_selector: (!template.node_selector.is_empty()).then_some(template.node_selector),
        tolerations: (!template.tolerations.is_empty()).then_some(template.tolerations),
        affinity: placement::affinity(inputs, role, template.affinity),
        priority_class_name: template.priority_class_name,
        runtime_class_name: template.runtime_class_name,
        ..PodSpec::default()
    }
}

fn volumes(
    inputs: &Inputs<'_>,
    config: String,
    template: &Template,
    model: Option<Volume>,
) -> Vec<Volume> {
    let mut volumes = vec![
        Volume {
            name: SHARED_VOLUME.into(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".into()),
                size_limit: Some(shared_memory(template)),
            }),
            ..Volume::default()
        },
        Volume {
            name: TMP_VOLUME.into(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        Volume {
            name: CONFIG_VOLUME.into(),
            config_map: Some(ConfigMapVolumeSource {
                name: config,
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
    ];
    if let Some(profile) = profile(inputs) {
        volumes.push(Volume {
            name: PROFILE_VOLUME.into(),
            config_map: Some(ConfigMapVolumeSource {
                name: profile.name.clone(),
                items: Some(vec![KeyToPath {
                    key: profile.key.clone(),
                    path: "profile.json".into(),
                    mode: None,
                }]),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        });
    }
    volumes.extend(tls::volume(inputs));
    volumes.extend(model);
    volumes.extend(template.volumes.clone());
    volumes
}

/// The KV pool lives in the shared memory and counts against the engine's limit, so it can't be larger than that.
fn shared_memory(template: &Template) -> Quantity {
    let limits = template
        .resources
        .as_ref()
        .and_then(|all| all.limits.as_ref());
    let memory = limits.and_then(|limits| limits.get("memory"));
    memory
        .cloned()
        .unwrap_or_else(|| Quantity(SHARED_MEMORY.into()))
}

/// The ConfigMap with the anchor's profile, where the spec names one.
pub(super) fn profile<'a>(inputs: &'a Inputs<'_>) -> Option<&'a ConfigMapProfile> {
    let profile = inputs.object.spec.transfer.anchor.profile.as_ref()?;
    profile.config_map.as_ref()
}

fn pull_secrets(inputs: &Inputs<'_>, template: &Template) -> Option<Vec<LocalObjectReference>> {
    let secrets = if template.image_pull_secrets.is_empty() {
        let defaults = &inputs.config.images.pull_secrets;
        defaults
            .iter()
            .map(|name| LocalObjectReference { name: name.clone() })
            .collect()
    } else {
        template.image_pull_secrets.clone()
    };
    (!secrets.is_empty()).then_some(secrets)
}

/// A container without any right that it doesn't need.
pub(super) fn least_rights() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".into()]),
        }),
        ..SecurityContext::default()
    }
}

/// A mount of one of the pod's volumes.
pub(super) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A plain environment variable.
pub(super) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        ..EnvVar::default()
    }
}

/// An environment variable of what a Secret has.
pub(super) fn from_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.into(),
                key: key.into(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

/// `None` where nothing is required.
pub(super) fn some_resources(resources: ResourceRequirements) -> Option<ResourceRequirements> {
    let empty = |map: &Option<BTreeMap<_, _>>| map.as_ref().is_none_or(BTreeMap::is_empty);
    let nothing =
        empty(&resources.limits) && empty(&resources.requests) && resources.claims.is_none();
    (!nothing).then_some(resources)
}
