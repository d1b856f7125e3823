//! The agent's configuration: one YAML file, environment variables over it, parsed whole before anything begins.
//!
//! Every field is in one table (its path, default, what is allowed, what it means), from which the names of the
//! variables, the default file and the messages follow. All mistakes are told at once, each with its path. It refuses
//! unknown fields: a misspelt one would silently be its default.

mod build;
mod fields;
mod mistakes;
mod print;
mod read;
mod strangers;
pub(crate) mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use lynx_policy::{Bounds, Fidelity, Objective};
use lynx_telemetry::LogFormat;
use lynx_units::{Bytes, Width};
use lynx_verbs::{Choice, Path as RdmaPath};
use rustls::pki_types::ServerName;

pub use mistakes::{Mistake, Mistakes};
pub use print::default_file;

/// What an agent is to do, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which end of the transfers this is.
    pub role: Role,
    /// Which pod this is.
    pub pod: Pod,
    /// Which deployment this belongs to.
    pub deployment: Deployment,
    /// What the agent listens on.
    pub listen: Listen,
    /// The engine beside this agent.
    pub engine: Engine,
    /// Prefill agents' peer control, as `host:port`, that are there whatever the operator says. Decode only.
    pub peers: Vec<String>,
    /// The operator; `None` works without one.
    pub operator: Option<Operator>,
    /// How KV travels.
    pub transfer: Transfer,
    /// What links go by.
    pub carriers: Carriers,
    /// What is encrypted, and with what.
    pub tls: Tls,
    /// What clients may do.
    pub http: Http,
    /// How long a drain waits where its caller does not say.
    pub drain_deadline: Duration,
    /// How long new work is still taken after a drain has begun.
    pub drain_grace: Duration,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// Variables that begin like this agent's and mean nothing to it: to be told of once there is a log.
    pub ignored_variables: Vec<String>,
}

/// Which end of the transfers an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Computes prompts and sends their KV.
    Prefill,
    /// Takes requests and answers them.
    Decode,
}

impl Role {
    /// `prefill` or `decode`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// Which pod an agent is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name, unique among the agents of a deployment.
    pub name: String,
    /// Its namespace; empty outside of a cluster.
    pub namespace: String,
    /// The address at which peers reach it; `None` where nobody needs it.
    pub ip: Option<IpAddr>,
}

/// Which deployment an agent belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Its name; empty without one.
    pub name: String,
    /// Agents of different generations never pair.
    pub generation: String,
    /// The node's value of the deployment's topology label; empty where there is none.
    pub topology: String,
}

/// What an agent listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Health, metrics, and on a decode agent the OpenAI endpoint.
    pub http: SocketAddr,
    /// The order to drain: not where clients are, who could send an agent out of service.
    pub drain: SocketAddr,
    /// Peer control. Prefill only.
    pub peer: SocketAddr,
    /// The transfer protocol. Prefill only.
    pub data: SocketAddr,
    /// Where peers are told that the transfer protocol is, as `host:port`, where it isn't where it is listened on: behind a
    /// port mapping or a relay.
    pub announced_data: Option<String>,
}

/// Where the operator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its control service, as `http://host:port`, or by TLS `https://host:port`.
    pub address: String,
    /// The name that its certificate must carry; `None`: the host of its address.
    pub name: Option<ServerName<'static>>,
}

impl Operator {
    /// Whether it is dialled by TLS.
    pub fn is_secure(&self) -> bool {
        self.address.starts_with("https:")
    }
}

/// The engine beside an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The socket that the agent listens on for it.
    pub socket: PathBuf,
    /// The directory that both mount, and that holds its KV pool.
    pub shared_directory: PathBuf,
    /// Where its own HTTP server is; `None` where it works by the socket alone.
    pub http: Option<Authority>,
    /// Where the key lies that it wants of a prefill agent's questions.
    pub api_key_file: Option<PathBuf>,
    /// How many requests may be with it at a time, waiting ones included; more are refused.
    pub queue: usize,
    /// Where the kernels for GPUs lie.
    pub kernels: PathBuf,
    /// The most pinned memory.
    pub pinned_memory: Bytes,
}

/// How KV travels.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// What "full" means.
    pub fidelity: Fidelity,
    /// What the anchor's width is chosen for.
    pub objective: Objective,
    /// How wide the anchor is.
    pub anchor: Anchor,
    /// The profile's file; `None` takes the built-in one of the model, or uniform widths.
    pub profile: Option<PathBuf>,
    /// How many tokens are drafted before they are verified, at most.
    pub max_draft_tokens: u32,
    /// Whether clients may ask for provisional tokens.
    pub allow_provisional: bool,
    /// When a transfer that isn't complete has failed.
    pub deadline: Duration,
    /// Memory for what has arrived and is not merged, in all.
    pub receive_buffer: Bytes,
    /// Memory for what transfers under way bring until all of it is merged. Decode only.
    pub merge_buffer: Bytes,
    /// Memory for what is split and not sent, in all. Prefill only.
    pub send_buffer: Bytes,
    /// Most transfers under way for one decode agent. Prefill only.
    pub per_peer: usize,
    /// Most transfers under way in all. Prefill only.
    pub most: usize,
    /// Memory for the messages of peer control that come, in all. Prefill only.
    pub message_memory: Bytes,
    /// Most links, and most connections of peer control. Prefill only.
    pub max_peers: usize,
    /// How many cached blocks a prefill agent tells its peers of, and a decode agent remembers of each.
    pub prefix_blocks: usize,
}

/// How wide the anchor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// What the link and the objective ask for, within these bounds.
    Adaptive(Bounds),
    /// Always this.
    Fixed(Width),
}

/// What links go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carriers {
    /// Which of the two.
    pub transport: Transport,
    /// Which card.
    pub choice: Choice,
    /// How many cards a link goes by at most.
    pub rails: u8,
    /// How packets of anchors and of residuals travel.
    pub paths: [RdmaPath; 2],
    /// Memory that links may have registered with cards, in all.
    pub memory: Bytes,
    /// Memory besides that cards may have been lent, in all.
    pub lent: Bytes,
}

/// What links may go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RDMA where both agents have it, TCP elsewhere.
    Auto,
    /// RDMA, or there is no link.
    Rdma,
    /// TCP.
    Tcp,
}

/// What is encrypted, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// What is encrypted.
    pub mode: TlsMode,
    /// Where the certificate, its key and the authorities are; there where the mode isn't off.
    pub directory: Option<PathBuf>,
    /// The name that peers' certificates must carry; without one, the first that the own one carries.
    pub peer_name: Option<String>,
}

/// What is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Nothing.
    Off,
    /// Peer control and the operator's stream.
    Control,
    /// These and links.
    All,
}

/// What clients may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// The largest body of a request.
    pub max_body: Bytes,
    /// What the bodies of all requests under way may take.
    pub body_memory: Bytes,
    /// How many connections there may be.
    pub max_connections: usize,
    /// How long the head of the next request on a connection may take.
    pub idle_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// Whether the endpoints that change the engine's prefix cache are there.
    pub admin: bool,
}

impl Http {
    /// What connections may do.
    pub const fn limits(&self) -> crate::http::Limits {
        crate::http::Limits {
            connections: self.max_connections,
            idle: self.idle_timeout,
            write: self.write_timeout,
        }
    }
}

/// Logs and traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// The collector's gRPC endpoint; `None` exports nothing.
    pub otlp_endpoint: Option<String>,
    /// The share of traces that are kept where no caller has decided.
    pub sampling: f64,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged, in the notation of `RUST_LOG`.
    pub log: String,
}

/// The variables that override fields, by name.
pub fn variables() -> impl Iterator<Item = String> {
    fields::FIELDS
        .iter()
        .map(|field| fields::variable(field.path))
}

impl Config {
    /// Reads the file, where there is one, and the environment.
    ///
    /// # Errors
    /// All mistakes of both, each with its path.
    pub fn load(path: Option<&Path>) -> Result<Self, Mistakes> {
        let text = match path {
            None => String::new(),
            Some(path) => read::file(path).map_err(|error| Mistakes::unreadable(path, &error))?,
        };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let strangers = strangers::find(names);
        let mut raw = read::read(&text, &environment);
        raw.mistakes.extend(strangers.misspelt);
        raw.mistakes
            .extend(read::no_texts(&|name| std::env::var_os(name)));
        let config = build::build(raw)?;
        Ok(Self {
            ignored_variables: strangers.ignored,
            ..config
        })
    }

    /// The same from a text and from whatever knows the variables.
    ///
    /// # Errors
    /// All mistakes of both, each with its path.
    pub fn parse(
        yaml: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Mistakes> {
        build::build(read::read(yaml, environment))
    }

    /// What this process tells of itself.
    pub fn telemetry_settings(&self) -> lynx_telemetry::Settings {
        use lynx_telemetry::{KeyValue, attributes};
        let mut attributes = vec![KeyValue::new(attributes::ROLE, self.role.name())];
        for (key, value) in [
            ("k8s.namespace.name", &self.pod.namespace),
            ("k8s.pod.name", &self.pod.name),
            (attributes::DEPLOYMENT, &self.deployment.name),
            (attributes::GENERATION, &self.deployment.generation),
        ] {
            if !value.is_empty() {
                attributes.push(KeyValue::new(key, value.clone()));
            }
        }
        lynx_telemetry::Settings {
            instance: Some(self.pod.name.clone()),
            attributes,
            otlp_endpoint: self.telemetry.otlp_endpoint.clone(),
            sampling: self.telemetry.sampling,
            log_format: self.telemetry.log_format,
            log_filter: self.telemetry.log.clone(),
            ..lynx_telemetry::Settings::new("lynx-agent")
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the agent's one reader of the environment"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests;
