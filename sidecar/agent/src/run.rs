//! An agent, put together: the list of its parts and what goes between them.

use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use lynx_proto::operator::v1::{Hello, Role as OperatorRole};
use lynx_tls::LoadError;
use lynx_transport::Clock;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::carriage::{Carriage, CarriageError};
use crate::clients::Clients;
use crate::config::{Config, Operator, Role};
use crate::control::{self, Sinks, Status, Told};
use crate::counters::Counters;
use crate::decode;
use crate::descriptors;
use crate::drain::Drain;
use crate::http;
use crate::metrics::{self, Metrics};
use crate::pool::GpuOptions;
use crate::prefill::{self, Prefill, PrefillError};
use crate::profile::{self, ChooseError};
use crate::requests::{Command, Requests};
use crate::security::Security;
use crate::session::{self, Attached, Socket, SocketError};
use crate::upstream::Upstream;

pub(crate) use lynx_telemetry::chain;

/// How long open connections get for what is on its way to them, after the drain.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why an agent can't work, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The HTTP address is taken, or not this machine's.
    #[error("can't listen for HTTP on {address}; configure another listen.http")]
    Http {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The address of the order to drain is taken, or not this machine's.
    #[error("can't listen for the order to drain on {address}; configure another listen.drain")]
    Drain {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The anchor profile (transfer.profile) can't be used.
    #[error("transfer.profile is of no use")]
    Profile(#[from] ChooseError),
    /// The engine's socket can't be listened on.
    #[error("no engine can attach")]
    Socket(#[from] SocketError),
    /// The prefill role can't work.
    #[error("the prefill role can't work")]
    Prefill(#[from] PrefillError),
    /// The decode role can't work.
    #[error("the decode role can't work")]
    Decode(#[source] io::Error),
    /// What is to be encrypted can't be.
    #[error("there is no certificate to work with")]
    Tls(#[from] LoadError),
    /// RDMA is asked for, and can't be had.
    #[error("links can't be made as they are wanted")]
    Carriage(#[from] CarriageError),
    /// The HTTP server has failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
    /// A part has ended that never should.
    #[error("a part of the agent ended: its log says more")]
    Ended,
}

/// An agent that listens on all its addresses.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    life: String,
    listener: TcpListener,
    http: SocketAddr,
    drain_listener: TcpListener,
    drain_address: SocketAddr,
    prefill: Option<Prefill>,
    security: Security,
    carriage: Carriage,
    socket: Socket,
    engines: mpsc::Receiver<Attached>,
    drain: Drain,
    counters: Arc<Counters>,
    status: watch::Sender<Status>,
}

impl Agent {
    /// Listens on everything that the configuration names; port 0 is any free one. Call it within a Tokio runtime.
    ///
    /// # Errors
    /// Where one can't be listened on.
    pub async fn bind(config: Config) -> Result<Self, RunError> {
        let carriage = Carriage::open(&config.carriers, config.tls.mode)?;
        Self::bind_by(carriage, config).await
    }

    /// The same with links that are carried so, whatever the configuration says of that.
    ///
    /// # Errors
    /// As above.
    pub async fn bind_by(carriage: Carriage, mut config: Config) -> Result<Self, RunError> {
        descriptors::fit(&mut config);
        // Before an engine is here to be refused for it.
        config
            .transfer
            .profile
            .as_deref()
            .map(profile::read)
            .transpose()?;
        let address = config.listen.http;
        let failed = |source| RunError::Http { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let http = listener.local_addr().map_err(failed)?;
        let address = config.listen.drain;
        let failed = |source| RunError::Drain { address, source };
        let drain_listener = TcpListener::bind(address).await.map_err(failed)?;
        let (drain, counters) = (
            Drain::with_grace(config.drain_grace),
            Arc::new(Counters::default()),
        );
        let security = Security::open(&config.tls)?.counted(&counters);
        let drain_address = drain_listener.local_addr().map_err(failed)?;
        let prefill = match config.role {
            Role::Decode => None,
            Role::Prefill => {
                let options = prefill_options(&config, &security, &carriage, &drain, &counters);
                Some(Prefill::bind(options).await?)
            }
        };
        let (socket, engines) = Socket::open(session::Options {
            socket: config.engine.socket.clone(),
            shared_directory: config.engine.shared_directory.clone(),
            role: config.role,
            has_http: config.engine.http.is_some(),
            gpu: GpuOptions {
                kernels: config.engine.kernels.clone(),
                pinned_bytes: usize::try_from(config.engine.pinned_memory.get())
                    .unwrap_or(usize::MAX),
            },
        })?;
        Ok(Self {
            config,
            life: format!("{:016x}", RandomState::new().build_hasher().finish()),
            listener,
            http,
            drain_listener,
            drain_address,
            prefill,
            security,
            carriage,
            socket,
            engines,
            drain,
            counters,
            status: watch::Sender::default(),
        })
    }

    /// Where HTTP is.
    pub const fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Where the order to drain is taken.
    pub const fn drain_address(&self) -> SocketAddr {
        self.drain_address
    }

    /// Where peer control is; `None` on a decode agent.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.prefill.as_ref().map(Prefill::control_address)
    }

    /// How it is, from now on.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Works until `shutdown` is there, then drains, for as long as the configuration says, and ends.
    ///
    /// # Errors
    /// Where a part of it fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let Self {
            config,
            life,
            listener,
            http,
            drain_listener,
            drain_address: _,
            prefill,
            security,
            carriage,
            socket,
            engines,
            drain,
            counters,
            status,
        } = self;
        let (sinks, told) = control::told();
        let (requests, commands) = Requests::new();
        let asked = (commands, Clients::default());
        let (watched, attachment) = (status.subscribe(), socket.attachment());
        let metrics = Metrics::new(metrics::Sources {
            role: config.role,
            counters: Arc::clone(&counters),
            status: watched.clone(),
            attachment: attachment.clone(),
            drain: drain.clone(),
        });
        let mut parts = JoinSet::new();
        let served = served(&config, &asked.1, &mut parts);
        let inputs = http::Inputs {
            requests,
            attachment: attachment.clone(),
            status: watched.clone(),
            policy: told.policy.clone(),
            served,
            drain: drain.clone(),
            metrics: Arc::new(metrics),
        };
        let (orders, routers) = routers(http::Settings::new(&config), inputs);
        let limits = config.http.limits();
        parts.spawn(take_orders(drain_listener, orders, limits));
        if let Some(operator) = config.operator.clone() {
            let sources = control::Sources {
                status: watched,
                attachment,
                counters: Arc::clone(&counters),
                drain: drain.clone(),
            };
            let hello = hello(&config, &life, prefill.as_ref());
            parts.spawn(talk(operator, security.clone(), hello, sources, sinks));
        }
        parts.spawn(renew(security.clone(), Arc::clone(&counters)));
        parts.spawn(async { Ok(socket.run().await?) });
        match prefill {
            Some(prefill) => {
                parts.spawn(async { Ok(prefill.run(engines, asked.0, status).await?) });
            }
            None => {
                let told = (told, carriage.clock());
                let inputs = decode_inputs(asked, engines, told, &drain, counters, status);
                let settings = decode::Settings::new(&config, &life, &security, &carriage);
                parts.spawn(answer(settings, inputs));
            }
        }
        let stop = CancellationToken::new();
        let mut servers = JoinSet::new();
        servers.spawn(serve(listener, routers, limits, stop.clone()));
        tracing::info!(role = config.role.name(), %http, "the agent listens");
        tokio::task::spawn_blocking(say_where_kv_can_be_coded);
        tokio::select! {
            ended = parts.join_next() => return ended_early(ended),
            ended = servers.join_next() => return ended_early(ended),
            () = shutdown => {}
        }
        drain_for(&drain, config.drain_deadline).await;
        // What is left is told that it ends, while there is still somebody to write it.
        parts.shutdown().await;
        stop.cancel();
        last_answers(servers).await
    }
}

/// Whether a GPU could do it, or why not; each engine's pool decides. A driver may take a second to be asked.
fn say_where_kv_can_be_coded() {
    match lynx_cuda::choose(&lynx_cuda::Options::default()) {
        lynx_cuda::Choice::Processor(why) => {
            tracing::info!(why = %chain(&why), "KV can be coded on the processor only")
        }
        choice @ lynx_cuda::Choice::Gpu(..) => {
            tracing::info!(gpu = %choice, "KV is coded where an engine publishes it, also on a GPU")
        }
    }
}

/// Lets the server write what it has.
async fn last_answers(mut servers: JoinSet<Result<(), RunError>>) -> Result<(), RunError> {
    match tokio::time::timeout(LAST_ANSWERS, servers.join_next()).await {
        Ok(Some(Ok(served))) => served,
        Ok(_) => Err(RunError::Ended),
        // Somebody holds a connection open.
        Err(_) => Ok(()),
    }
}

/// What the order to drain is taken by, and what everything else is answered by.
fn routers(settings: http::Settings, inputs: http::Inputs) -> (Router, [Router; 2]) {
    let orders = http::drain_router(&settings, &inputs);
    let crowded = http::crowded_router(&settings, &inputs);
    (orders, [http::router(settings, inputs), crowded])
}

async fn serve(
    listener: TcpListener,
    routers: [Router; 2],
    limits: http::Limits,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let served = http::serve(listener, routers, limits, stop).await;
    served.map_err(RunError::Serve)
}

/// The engine's own server, where it has one, asked from now on whether it answers.
fn served(
    config: &Config,
    clients: &Clients,
    parts: &mut JoinSet<Result<(), RunError>>,
) -> Option<http::Served> {
    let upstream = Upstream::new(config.engine.http.clone()?);
    let address = upstream.authority();
    let (told, health) = watch::channel(Some(format!(
        "the engine's HTTP server at {address} was not asked yet"
    )));
    let watched = upstream.clone();
    parts.spawn(async move {
        watched.watch(told).await;
        Ok(())
    });
    Some(http::Served {
        upstream,
        health,
        clients: clients.clone(),
    })
}

async fn drain_for(drain: &Drain, patience: Duration) {
    tracing::info!(?patience, "draining: the process is to end");
    drain.begin(patience);
    match drain.finished().await {
        0 => tracing::info!("ending: nothing is in flight"),
        left => tracing::warn!(
            left,
            "ending: the drain's time is over (drain.deadline), and what is left ends with an error that says so"
        ),
    }
}

/// Binds and runs an agent until `shutdown` is there.
///
/// # Errors
/// Where it can't listen, or a part of it fails.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    Agent::bind(config).await?.run(shutdown).await
}

fn prefill_options(
    config: &Config,
    security: &Security,
    carriage: &Carriage,
    drain: &Drain,
    counters: &Arc<Counters>,
) -> prefill::Options {
    let own: Option<PathBuf> = config.transfer.profile.clone();
    prefill::Options {
        name: config.pod.name.clone(),
        generation: config.deployment.generation.clone(),
        control: config.listen.peer,
        data: config.listen.data,
        announced_data: config.listen.announced_data.clone(),
        send_buffer: config.transfer.send_buffer,
        message_memory: config.transfer.message_memory,
        most_peers: config.transfer.max_peers,
        most_transfers: [config.transfer.per_peer, config.transfer.most],
        security: security.clone(),
        carriage: carriage.clone(),
        choose_profile: Arc::new(move |model, shape| {
            profile::choose(own.as_deref(), model, shape).map_err(|error| chain(&error))
        }),
        drain: drain.clone(),
        counters: Arc::clone(counters),
        prefix_blocks: config.transfer.prefix_blocks,
        upstream: config
            .engine
            .http
            .clone()
            .map(|http| Upstream::new(http).with_key_file(config.engine.api_key_file.clone())),
    }
}

fn decode_inputs(
    (commands, clients): (mpsc::UnboundedReceiver<Command>, Clients),
    engines: mpsc::Receiver<Attached>,
    (told, clock): (Told, Clock),
    drain: &Drain,
    counters: Arc<Counters>,
    status: watch::Sender<Status>,
) -> decode::Inputs {
    decode::Inputs {
        commands,
        clients,
        engines,
        peers: told.peers,
        policy: told.policy,
        look: told.look,
        drain: drain.clone(),
        counters,
        status,
        clock,
    }
}

fn hello(config: &Config, life: &str, prefill: Option<&Prefill>) -> Hello {
    let role = match config.role {
        Role::Prefill => OperatorRole::Prefill,
        Role::Decode => OperatorRole::Decode,
    };
    let bound = prefill.map(Prefill::control_address);
    let peer_address = match (bound, config.pod.ip) {
        (Some(bound), Some(ip)) => SocketAddr::new(ip, bound.port()).to_string(),
        _ => String::new(),
    };
    Hello {
        namespace: config.pod.namespace.clone(),
        deployment: config.deployment.name.clone(),
        pod: config.pod.name.clone(),
        role: role.into(),
        generation: config.deployment.generation.clone(),
        peer_address,
        topology: config.deployment.topology.clone(),
        incarnation: life.to_owned(),
    }
}

/// Few have a reason to call there.
async fn take_orders(
    listener: TcpListener,
    orders: Router,
    limits: http::Limits,
) -> Result<(), RunError> {
    const CALLERS: usize = 32;
    let limits = http::Limits {
        connections: CALLERS.min(limits.connections),
        ..limits
    };
    let routers = [orders.clone(), orders];
    serve(listener, routers, limits, CancellationToken::new()).await
}

async fn renew(security: Security, counters: Arc<Counters>) -> Result<(), RunError> {
    security.keep_fresh(counters).await;
    Ok(())
}

async fn answer(settings: decode::Settings, inputs: decode::Inputs) -> Result<(), RunError> {
    let ended = decode::run(settings, inputs).await;
    ended.map_err(RunError::Decode)
}

async fn talk(
    operator: Operator,
    security: Security,
    hello: Hello,
    sources: control::Sources,
    sinks: Sinks,
) -> Result<(), RunError> {
    control::run(operator, security, hello, sources, sinks).await;
    Ok(())
}

fn ended_early(
    ended: Option<Result<Result<(), RunError>, tokio::task::JoinError>>,
) -> Result<(), RunError> {
    match ended {
        Some(Ok(Err(error))) => Err(error),
        _ => Err(RunError::Ended),
    }
}
