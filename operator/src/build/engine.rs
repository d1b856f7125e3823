//! The engine's container.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, Lifecycle, LifecycleHandler, ResourceRequirements,
};
use kube::ResourceExt as _;
use lynx_crds::spec::{Engine, EngineType, Http};

use super::model::Mounted;
use super::names::Role;
use super::{Inputs, agent, devices, generation, pod};

/// Tokens of KV that the embedded engine has room for, where `engine.args` says nothing.
const MAX_TOKENS: u32 = 8192;

/// Where engines with a server of their own listen.
const LOOPBACK: &str = "127.0.0.1";
/// What says so to vLLM.
const PORT: &str = "--port";
/// Where vLLM looks for the API key that it is to ask for.
const VLLM_API_KEY: &str = "VLLM_API_KEY";

/// The container. Before it is told to stop, its hook waits for the agent's drain: the engine goes first when a pod goes.
pub(super) fn container(inputs: &Inputs<'_>, role: Role, model: &Mounted) -> Container {
    let engine = &inputs.object.spec.engine;
    let template = inputs.pool(role).template.clone().unwrap_or_default();
    let mut resources = template.resources.unwrap_or_default();
    let threads = whole_cpus(&resources);
    devices::give_engine(inputs, role, &mut resources);
    let mut mounts = vec![
        pod::mount(pod::SHARED_VOLUME, agent::SHARED, false),
        pod::mount(pod::TMP_VOLUME, "/tmp", false),
    ];
    mounts.extend(model.mount.clone());
    mounts.extend(template.volume_mounts.clone());
    let own_image = engine.image.is_none();
    let images = &inputs.config.images;
    Container {
        name: "engine".into(),
        image: engine.image.clone().or_else(|| Some(images.engine.clone())),
        image_pull_policy: Some(if own_image {
            images.pull_policy.clone()
        } else {
            engine.image_pull_policy.name().into()
        }),
        args: Some(arguments(inputs, role, model, threads)),
        env: Some(environment(inputs, role, model, &template.env)),
        ports: ports(inputs),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                http_get: Some(agent::drain()),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        resources: pod::some_resources(resources),
        security_context: Some(pod::least_rights()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// The operator's arguments, without those that the spec gives itself, and then the spec's.
fn arguments(
    inputs: &Inputs<'_>,
    role: Role,
    model: &Mounted,
    threads: Option<u64>,
) -> Vec<String> {
    let spec = &inputs.object.spec;
    let given = &spec.engine.args;
    let name = spec.model.served_name();
    let (first, options) = match spec.engine.type_ {
        EngineType::Embedded => (
            Some("engine"),
            vec![
                ("--role", Some(role.name().to_owned())),
                ("--model", Some(model.path.clone())),
                ("--socket", Some(agent::SOCKET.into())),
                ("--shared-directory", Some(agent::SHARED.into())),
                ("--max-tokens", Some(MAX_TOKENS.to_string())),
                ("--threads", threads.map(|threads| threads.to_string())),
                ("--name", Some(name.to_owned())),
            ],
        ),
        EngineType::Vllm => (
            None,
            vec![
                ("--model", Some(model.path.clone())),
                ("--served-model-name", Some(name.to_owned())),
                (
                    "--tensor-parallel-size",
                    Some(spec.engine.tensor_parallel_size.to_string()),
                ),
                // Clients' requests come through the agent, and nobody else's.
                ("--host", Some(LOOPBACK.into())),
                (PORT, Some(own_http(&spec.engine).port().to_string())),
            ],
        ),
        EngineType::Custom => (None, Vec::new()),
    };
    let ours = options
        .into_iter()
        .filter(|(option, _)| !given.iter().any(|own| is_option(own, option)))
        .filter_map(|(option, value)| Some([option.to_owned(), value?]))
        .flatten();
    first
        .map(str::to_owned)
        .into_iter()
        .chain(ours)
        .chain(given.iter().cloned())
        .collect()
}

/// Where the engine's own HTTP server is, for the agent; `None` where the engine has none.
pub(super) fn http(inputs: &Inputs<'_>) -> Option<String> {
    http_port(&inputs.object.spec.engine).map(|port| format!("http://{LOOPBACK}:{port}"))
}

/// The port of that server. One that isn't a number is the engine's to complain of.
pub(crate) fn http_port(engine: &Engine) -> Option<u16> {
    match engine.type_ {
        EngineType::Vllm => {
            let port = given(&engine.args, PORT).and_then(|port| port.parse().ok());
            Some(port.unwrap_or_else(|| own_http(engine).port()))
        }
        EngineType::Custom => engine.http.as_ref().map(Http::port),
        EngineType::Embedded => None,
    }
}

/// Whether vLLM's arguments and the spec both say where it listens.
pub(crate) fn says_port_twice(engine: &Engine) -> bool {
    let is_vllm = engine.type_ == EngineType::Vllm;
    is_vllm && own_http(engine).port.is_some() && given(&engine.args, PORT).is_some()
}

fn own_http(engine: &Engine) -> Http {
    engine.http.clone().unwrap_or_default()
}

/// vLLM is told its API key. What another engine calls it is not known here.
fn api_key(engine: &Engine) -> Option<EnvVar> {
    let secret = engine.http.as_ref()?.api_key_secret.as_ref()?;
    (engine.type_ == EngineType::Vllm)
        .then(|| pod::from_secret(VLLM_API_KEY, &secret.name, &secret.key))
}

/// The last value of an option, written either way.
fn given<'a>(arguments: &'a [String], option: &str) -> Option<&'a str> {
    let at = arguments.iter().rposition(|own| is_option(own, option))?;
    let joined = arguments.get(at)?.split_once('=');
    let joined = joined.map(|(_, value)| value);
    joined.or_else(|| arguments.get(at + 1).map(String::as_str))
}

/// Whether `argument` is `option` or `option=…`.
fn is_option(argument: &str, option: &str) -> bool {
    argument
        .strip_prefix(option)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// A pool's own variables win over the engine's, and both over ours.
fn environment(inputs: &Inputs<'_>, role: Role, model: &Mounted, pool: &[EnvVar]) -> Vec<EnvVar> {
    let object = inputs.object;
    let mut env = vec![
        // The root file system is read-only, and many engines write caches at home.
        pod::variable("HOME", "/tmp"),
        pod::variable("LYNX_ENGINE_SOCKET", agent::SOCKET),
        pod::variable("LYNX_SHARED_DIRECTORY", agent::SHARED),
        pod::variable("LYNX_ROLE", role.name()),
        pod::variable("LYNX_MODEL", &model.path),
        pod::variable(
            "LYNX_SPLIT",
            if inputs.engine_splits(role) {
                "engine"
            } else {
                "agent"
            },
        ),
    ];
    if let Some((endpoint, percent)) = inputs.otlp() {
        let attributes = format!(
            "k8s.namespace.name={},lynx.deployment={},lynx.generation={},lynx.role={}",
            object.namespace().unwrap_or_default(),
            object.name_any(),
            generation::generation(&object.spec),
            role.name(),
        );
        env.extend([
            pod::variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            pod::variable("OTEL_SERVICE_NAME", "lynx-engine"),
            pod::variable("OTEL_RESOURCE_ATTRIBUTES", &attributes),
            pod::variable("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            pod::variable(
                "OTEL_TRACES_SAMPLER_ARG",
                &(f64::from(percent) / 100.0).to_string(),
            ),
        ]);
    }
    env.extend(model.env.clone());
    env.extend(api_key(&object.spec.engine));
    for given in object.spec.engine.env.iter().chain(pool) {
        env.retain(|own| own.name != given.name);
        env.push(given.clone());
    }
    env
}

fn ports(inputs: &Inputs<'_>) -> Option<Vec<ContainerPort>> {
    let ports = &inputs.object.spec.engine.ports;
    let ports = ports.iter().map(|port| ContainerPort {
        name: Some(port.name.clone()),
        container_port: port.container_port.into(),
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    });
    (!inputs.object.spec.engine.ports.is_empty()).then(|| ports.collect())
}

/// The whole CPUs that a limit allows, at least one; `None` without a limit.
fn whole_cpus(resources: &ResourceRequirements) -> Option<u64> {
    let limit = &resources.limits.as_ref()?.get("cpu")?.0;
    let millis = match limit.strip_suffix('m') {
        Some(millis) => millis.parse::<u64>().ok()?,
        None => {
            let (whole, part) = limit.split_once('.').unwrap_or((limit, ""));
            let part: String = part.chars().chain("000".chars()).take(3).collect();
            whole
                .parse::<u64>()
                .ok()?
                .checked_mul(1000)?
                .checked_add(part.parse().ok()?)?
        }
    };
    Some((millis / 1000).max(1))
}
