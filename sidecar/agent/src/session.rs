//! The engine's socket: one engine at a time, attached, checked and handed to the role.
//!
//! What goes over it is the engine API (`engine.proto`). Here an engine is taken or refused by name, its pool is mapped, and
//! its messages are held to the rules; what they mean is the role's affair. Not one service for each role: the rules of
//! one stream are one piece.

mod attachment;
mod handover;
mod message;
mod rules;
mod state;
mod trial;

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::Stream;
use lynx_proto::engine::v1::engine_api_server::{EngineApi, EngineApiServer};
use lynx_proto::engine::v1::{self, Attach, FromAgent, FromEngine, from_agent, from_engine};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{UnboundedReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

pub use self::attachment::{Attached, Engine, EngineGone, Messages};
use self::handover::{Handover, Shelf};
pub use self::message::{Expected, Message};
pub use self::trial::Trial;
use crate::config::Role;
use crate::pool::{Access, GpuOptions, Layout, LayoutError, Outbox, Pool, PoolError};

/// The version of the engine API.
const API_VERSION: u32 = 1;
/// The longest message: a prompt of a million tokens and some.
const MAX_MESSAGE: usize = 8 << 20;
/// The longest name of anything, in bytes: names go into logs, spans and conditions.
const LONGEST_NAME: usize = 256;
/// How long an engine may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// How long a role may take to let go of a pool in a GPU's memory after its engine's end.
const CLOSING_TIME: Duration = Duration::from_secs(20);
/// How often an engine that says nothing is asked whether it still lives, and how long it may take to answer. Its stream
/// tells of a process that ends; one that hangs holds it open, and its requests with it. Long, against the links' own
/// heartbeats: an engine's process may be busy with other things than its socket.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(5)];
const SOCKET_MODE: u32 = 0o660;

/// What a socket is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket, in a directory that exists.
    pub socket: PathBuf,
    /// Where engines' pools are.
    pub shared_directory: PathBuf,
    /// Which engines are taken.
    pub role: Role,
    /// Whether engines that are taken have an HTTP server of their own, which this agent knows of (`engine.http`): those that
    /// need none are then refused, and where it knows of none those that have one.
    pub has_http: bool,
    /// How KV in a GPU's memory is coded.
    pub gpu: GpuOptions,
}

/// Whether there is an engine.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    /// The one that is attached.
    pub engine: Option<Arc<Attach>>,
    /// The GPU on which its KV is coded, for people; `None` for the processor.
    pub gpu: Option<String>,
    /// Why the last one that tried is not, where it does not fit, or broke the rules.
    pub error: Option<String>,
    /// How many were taken so far.
    pub taken: u64,
    /// How many were refused so far.
    pub refused: u64,
}

/// The listening socket.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    handover: Handover,
    service: Service,
    attachment: watch::Receiver<Attachment>,
    file: SocketFile,
}

/// The socket in its directory, until it is dropped: unless another agent has put its own there meanwhile.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Why the socket can't be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Its directory isn't there.
    #[error(
        "the engine socket's directory {} does not exist: mount the volume that the engine shares, or configure another engine.socket", directory.display()
    )]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory of the engine's pool isn't there.
    #[error(
        "the directory {} does not exist: mount the volume that the engine shares, or configure another engine.sharedDirectory", directory.display()
    )]
    NoSharedDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// Somebody listens there.
    #[error(
        "another agent listens on {}: end it, or configure another engine.socket", path.display()
    )]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else at that path.
    #[error("{} is no socket: remove it, or configure another engine socket", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("can't listen on the engine socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The server has failed.
    #[error("the engine socket's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

impl Socket {
    /// Listens for engines; each one that is taken comes out of the receiver. A socket file that a former life left behind is
    /// replaced. Call it within a Tokio runtime.
    ///
    /// # Errors
    /// Where the socket can't be made.
    pub fn open(options: Options) -> Result<(Self, mpsc::Receiver<Attached>), SocketError> {
        let path = options.socket.clone();
        let failed = |source| SocketError::Io {
            path: path.clone(),
            source,
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.exists())
            && !directory.as_os_str().is_empty()
        {
            let directory = directory.to_owned();
            return Err(SocketError::NoDirectory { directory });
        }
        if !options.shared_directory.is_dir() {
            let directory = options.shared_directory;
            return Err(SocketError::NoSharedDirectory { directory });
        }
        match std::fs::symlink_metadata(&path) {
            Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                if std::os::unix::net::UnixStream::connect(&path).is_ok() {
                    return Err(SocketError::Taken { path });
                }
                std::fs::remove_file(&path).map_err(failed)?;
            }
            Ok(_) => return Err(SocketError::Occupied { path }),
            Err(_) => {}
        }
        let listener = listen(&path).map_err(failed)?;
        let file = SocketFile::of(path.clone()).map_err(failed)?;
        let handover = Handover::open(&path).map_err(failed)?;
        let (engines, inbox) = mpsc::channel(1);
        let (state, attachment) = watch::channel(Attachment::default());
        let service = Service {
            options: Arc::new(options),
            engines,
            state: Arc::new(state),
            place: Arc::default(),
            shelf: handover.shelf(),
        };
        let socket = Self {
            listener,
            handover,
            service,
            attachment,
            file,
        };
        Ok((socket, inbox))
    }

    /// Whether there is an engine, now and from now on.
    pub fn attachment(&self) -> watch::Receiver<Attachment> {
        self.attachment.clone()
    }

    /// Serves engines until it is dropped.
    ///
    /// # Errors
    /// Where the server fails.
    pub async fn run(self) -> Result<(), SocketError> {
        let service = EngineApiServer::new(self.service).max_decoding_message_size(MAX_MESSAGE);
        let _file = self.file;
        let [interval, patience] = KEEPALIVE;
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(interval))
            .http2_keepalive_timeout(Some(patience))
            .add_service(service)
            .serve_with_incoming(UnixListenerStream::new(self.listener));
        tokio::select! {
            served = serving => Ok(served?),
            never = self.handover.run() => match never {},
        }
    }
}

/// The group may use it too: the engine's container runs as another user.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Why an engine is not taken.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("a name has over {LONGEST_NAME} bytes: engine, model, weights or pool.file")]
    LongName,
    #[error("the first message must be Attach")]
    NoAttach,
    #[error("no Attach came within {GREETING_TIME:?}")]
    Silent,
    #[error(
        "the engine speaks version {0} of the engine API, and this agent version {API_VERSION}: use releases of the same version"
    )]
    Version(u32),
    #[error("the engine is for {engine}, and this agent for {agent}: configure one of them anew")]
    Role {
        engine: &'static str,
        agent: &'static str,
    },
    #[error(
        "the engine has an HTTP server of its own (Attach.generates is false), and this agent does not know where: configure engine.http"
    )]
    NoHttp,
    #[error(
        "the engine works by this stream alone (Attach.generates), and this agent would send its clients to engine.http: leave that out of its configuration"
    )]
    Http,
    #[error("the engine takes sequences of no token: set Attach.context_tokens")]
    Context,
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("another engine ({0}) is attached: only one at a time is taken")]
    Taken(String),
    #[error("the agent is shutting down")]
    ShuttingDown,
}

/// The engine API's server.
#[derive(Clone, Debug)]
struct Service {
    options: Arc<Options>,
    engines: mpsc::Sender<Attached>,
    state: Arc<watch::Sender<Attachment>>,
    /// The name of the engine that is attached.
    place: Arc<Mutex<Option<String>>>,
    /// Descriptors that engines have handed over.
    shelf: Shelf,
}

/// The one place for an engine, until it is dropped.
#[derive(Debug)]
struct Place(Arc<Mutex<Option<String>>>);

impl Service {
    async fn take(
        &self,
        mut stream: Streaming<FromEngine>,
    ) -> Result<UnboundedReceiverStream<Result<FromAgent, Status>>, Refusal> {
        let first = tokio::time::timeout(GREETING_TIME, stream.message()).await;
        let first = first.map_err(|_| Refusal::Silent)?.ok().flatten();
        let Some(from_engine::Kind::Attach(attach)) = first.and_then(|message| message.kind) else {
            return Err(Refusal::NoAttach);
        };
        if names(&attach).any(|name| name.len() > LONGEST_NAME) {
            return Err(Refusal::LongName);
        }
        // What never fits is said before what doesn't fit now.
        let layout = self.check(&attach)?;
        let place = self.enter(&attach.engine)?;
        let (outbox, outgoing) = mpsc::unbounded_channel();
        let pool = self.open(&attach, layout, &outbox).await?;
        let attached = v1::Attached {
            agent: concat!("lynx-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
            coded_on: pool.coded_on().to_owned(),
        };
        let engine = Engine::new(attach, pool, outbox);
        let greeted = engine.send(from_agent::Kind::Attached(attached));
        greeted.map_err(|_| Refusal::ShuttingDown)?;
        tokio::spawn(self.clone().serve(engine, stream, place));
        Ok(UnboundedReceiverStream::new(outgoing))
    }

    fn enter(&self, engine: &str) -> Result<Place, Refusal> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = place.as_ref() {
            return Err(Refusal::Taken(other.clone()));
        }
        *place = Some(engine.to_owned());
        Ok(Place(Arc::clone(&self.place)))
    }

    fn check(&self, attach: &Attach) -> Result<Layout, Refusal> {
        if attach.api_version != API_VERSION {
            return Err(Refusal::Version(attach.api_version));
        }
        let (wanted, agent) = match self.options.role {
            Role::Prefill => (v1::Role::Prefill, "prefill"),
            Role::Decode => (v1::Role::Decode, "decode"),
        };
        if attach.role() != wanted {
            let engine = match attach.role() {
                v1::Role::Prefill => "prefill",
                v1::Role::Decode => "decode",
                v1::Role::Unspecified => "no role",
            };
            return Err(Refusal::Role { engine, agent });
        }
        match (self.options.has_http, attach.generates) {
            (false, false) => return Err(Refusal::NoHttp),
            (true, true) => return Err(Refusal::Http),
            (false, true) | (true, false) => {}
        }
        if attach.context_tokens == 0 {
            return Err(Refusal::Context);
        }
        let layout = attach.layout.as_ref().ok_or(LayoutError::Missing)?;
        let pool = attach.pool.as_ref().ok_or(PoolError::Missing)?;
        Ok(match (&pool.gpu, &pool.staging) {
            (_, Some(_)) => Layout::by_engine(layout)?,
            (Some(gpu), None) => Layout::on_gpu(layout, gpu)?,
            (None, None) => Layout::parse(layout)?,
        })
    }

    /// The engine's pool: mapped, or opened on its GPU, whose driver may take its time.
    async fn open(
        &self,
        attach: &Attach,
        layout: Layout,
        outbox: &Outbox,
    ) -> Result<Pool, Refusal> {
        let pool = attach.pool.clone().ok_or(PoolError::Missing)?;
        if let Some(staging) = &pool.staging {
            let (directory, outbox) = (&self.options.shared_directory, outbox.clone());
            return Ok(Pool::by_engine(directory, &pool, staging, layout, outbox)?);
        }
        let Some(gpu) = pool.gpu.clone() else {
            let access = match self.options.role {
                Role::Prefill => Access::Read,
                Role::Decode => Access::Write,
            };
            let directory = &self.options.shared_directory;
            return Ok(Pool::open(directory, &pool, layout, access)?);
        };
        let (options, shelf) = (self.options.gpu.clone(), self.shelf.clone());
        let role = self.options.role;
        let opening = tokio::task::spawn_blocking(move || {
            let pool = Pool::import(&pool, &gpu, layout, &options, |name| shelf.get(name))?;
            if role == Role::Prefill {
                // Here, where pinning memory holds up nobody.
                drop(pool.lendable());
            }
            Ok::<_, PoolError>(pool)
        });
        Ok(opening.await.map_err(|_| Refusal::ShuttingDown)??)
    }

    /// The life of one attached engine.
    async fn serve(self, engine: Engine, stream: Streaming<FromEngine>, place: Place) {
        let name = engine.info().engine.clone();
        let gpu = engine.pool().gpu().map(str::to_owned);
        let coded_on = engine.pool().coded_on();
        tracing::info!(engine = name, coded_on, "an engine is attached");
        self.state.send_modify(|state| {
            state.engine = Some(Arc::clone(engine.info()));
            state.gpu.clone_from(&gpu);
            state.error = None;
            state.taken += 1;
        });
        let (inbox, messages) = attachment::inbox();
        let handed = Attached {
            engine: engine.clone(),
            messages,
        };
        // Where no role takes it, the inbox is closed, and that is what listening ends with.
        drop(self.engines.send(handed).await);
        let closed = engine.pool().closed();
        let (why, last) = attachment::listen(engine, stream, inbox).await;
        if let Some(last) = last {
            if tokio::time::timeout(CLOSING_TIME, closed).await.is_err() {
                tracing::warn!(engine = name, "its memory on the GPU is still open");
            }
            last.say();
        }
        tracing::warn!(engine = name, why, "the engine is gone");
        self.state.send_modify(|state| {
            state.engine = None;
            state.gpu = None;
            state.error = Some(why);
        });
        drop(place);
    }
}

/// What an engine calls itself and its files.
fn names(attach: &Attach) -> impl Iterator<Item = &str> {
    let pool = attach.pool.as_ref();
    let staging = pool.and_then(|pool| pool.staging.as_ref());
    let files = [
        pool.map(|pool| pool.file.as_str()),
        staging.map(|staging| staging.file.as_str()),
    ];
    let own = [attach.engine.as_str(), &attach.model, &attach.weights];
    own.into_iter().chain(files.into_iter().flatten())
}

impl SocketFile {
    fn of(path: PathBuf) -> io::Result<Self> {
        let inode = std::fs::symlink_metadata(&path)?.ino();
        Ok(Self { path, inode })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[tonic::async_trait]
impl EngineApi for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<FromAgent, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<FromEngine>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        match self.take(request.into_inner()).await {
            Ok(outgoing) => Ok(Response::new(Box::pin(outgoing))),
            Err(refusal) => {
                let why = refusal.to_string();
                tracing::warn!(why, "an engine was refused");
                self.state.send_modify(|state| {
                    state.error = Some(why.clone());
                    state.refused += 1;
                });
                Err(Status::failed_precondition(why))
            }
        }
    }
}

#[cfg(test)]
mod tests;
