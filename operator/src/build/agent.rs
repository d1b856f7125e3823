//! The agent's container: a native sidecar.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, Probe,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names::Role;
use super::{Inputs, api_key, devices, generation, pod, tls};

/// Health, metrics, and on the decode side the OpenAI endpoint.
pub(super) const HTTP: u16 = 8080;
/// The order to drain: in no Service, and not let through by the NetworkPolicy. The kubelet reaches it.
const DRAIN_PORT: u16 = 8081;
/// Peer control.
pub(super) const PEER: u16 = 7400;
/// The transfer protocol.
pub(super) const DATA: u16 = 7401;
/// The directory that engine and agent share, in memory.
pub(super) const SHARED: &str = "/run/lynx";
/// Where the engine dials the agent.
pub(super) const SOCKET: &str = "/run/lynx/engine.sock";
/// Where the agent's configuration is mounted.
pub(super) const CONFIG: &str = "/etc/lynx";
/// Where a profile's ConfigMap is mounted.
pub(super) const PROFILES: &str = "/etc/lynx-profile";
/// The profile's file there.
pub(super) const PROFILE: &str = "/etc/lynx-profile/profile.json";

/// The container. It starts before the engine, and its start doesn't wait for one; it is ready when an engine is attached
/// and, on the decode side, requests can be answered.
pub(super) fn container(inputs: &Inputs<'_>, role: Role) -> Container {
    let config = inputs.config;
    let template = inputs.pool(role).template.clone().unwrap_or_default();
    let mut resources = template.agent_resources.unwrap_or_default();
    devices::give_agent(inputs, role, &mut resources);
    Container {
        name: "agent".into(),
        image: Some(config.images.agent.clone()),
        image_pull_policy: Some(config.images.pull_policy.clone()),
        args: Some(vec!["--config".into(), format!("{CONFIG}/agent.yaml")]),
        restart_policy: Some("Always".into()),
        env: Some(environment(inputs)),
        ports: Some(ports(role)),
        startup_probe: Some(probe("/startupz", 1, 120)),
        readiness_probe: Some(probe("/readyz", 1, 2)),
        liveness_probe: Some(probe("/livez", 10, 3)),
        resources: pod::some_resources(resources),
        security_context: Some(devices::agent_security(inputs, role)),
        // Why an agent ends is in the last line of its log: the status of its pod has it then, and the deployment's too.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        volume_mounts: Some(mounts(inputs, role)),
        ..Container::default()
    }
}

fn mounts(inputs: &Inputs<'_>, role: Role) -> Vec<k8s_openapi::api::core::v1::VolumeMount> {
    let mut mounts = vec![
        pod::mount(pod::SHARED_VOLUME, SHARED, false),
        pod::mount(pod::CONFIG_VOLUME, CONFIG, true),
        pod::mount(pod::TMP_VOLUME, "/tmp", false),
    ];
    if pod::profile(inputs).is_some() {
        mounts.push(pod::mount(pod::PROFILE_VOLUME, PROFILES, true));
    }
    if tls::secret_name(inputs.object).is_some() {
        mounts.push(pod::mount(tls::VOLUME, tls::FOLDER, true));
    }
    mounts.extend(api_key::mount(inputs, role));
    mounts
}

fn environment(inputs: &Inputs<'_>) -> Vec<EnvVar> {
    vec![
        field("LYNX_POD_NAME", "metadata.name"),
        field("LYNX_POD_NAMESPACE", "metadata.namespace"),
        field("LYNX_POD_IP", "status.podIP"),
        // Not in the file: a container that restarts during a rollout must not join the new generation.
        pod::variable(
            "LYNX_DEPLOYMENT_GENERATION",
            &generation::generation(&inputs.object.spec),
        ),
    ]
}

fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn ports(role: Role) -> Vec<ContainerPort> {
    let mut ports = vec![("http", HTTP)];
    if role == Role::Prefill {
        ports.extend([("peer", PEER), ("data", DATA)]);
    }
    ports
        .into_iter()
        .map(|(name, port)| ContainerPort {
            name: Some(name.into()),
            container_port: port.into(),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        })
        .collect()
}

fn probe(path: &str, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(get(path, HTTP)),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        timeout_seconds: Some(2),
        ..Probe::default()
    }
}

/// What returns when nothing is in flight any more, or when the drain's time is over.
pub(super) fn drain() -> HTTPGetAction {
    get("/drain", DRAIN_PORT)
}

/// Where the agent listens for the order to drain.
pub(super) fn drain_address() -> String {
    format!("0.0.0.0:{DRAIN_PORT}")
}

fn get(path: &str, port: u16) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.into()),
        port: IntOrString::Int(port.into()),
        ..HTTPGetAction::default()
    }
}
