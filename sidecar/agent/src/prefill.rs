//! The prefill role: has its engine compute prompts, splits their KV and sends it.
//!
//! One task owns all of it: peers' questions, the engine's messages, the links and the splitting thread meet in one loop, and
//! nothing in that loop waits for any of them. It decides nothing about bytes on the wire (the links' schedulers do) and
//! nothing about when prompts are computed (the engine does).

mod board;
mod budget;
mod ending;
mod messages;
mod node;
mod posting;
mod service;
mod serving;
mod splitting;
#[cfg(test)]
mod tests;
mod transferring;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::{Codec, KvShape, Profile};
use lynx_proto::peer::v1::{CheckRequest, CheckResponse, ProbeFacts, WatchRequest};
use lynx_protocol::sender::Event;
use lynx_protocol::wire::EncodeError;
use lynx_transport::{Clock, LinkConfig, ListenError, Listener, Ticket};
use lynx_units::{Bytes, Epoch};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status as Answer;

use self::board::Reader;
use self::messages::Bound;
use self::node::Node;
use self::service::{Asked, Service};
use self::splitting::{Split, Splitting};
use crate::carriage::Carriage;
use crate::control::Status;
use crate::counters::Counters;
use crate::drain::Drain;
use crate::identity::Identity;
use crate::profile;
use crate::requests::{Command, Generated, Refusal};
use crate::security::{self, Security};
use crate::session::{Attached, Engine, Message};
use crate::upstream::Upstream;

/// How often a caller that says nothing is asked whether it is still there, and how long it may take to answer: a transfer
/// whose caller has vanished is ended.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How many questions of one connection are looked at at a time: each may be as long as a prompt.
const QUESTIONS: usize = 64;

/// What a connection may send ahead of what is read: all connections together have a bounded number of these.
const WINDOW: u32 = 256 << 10;
/// The longest head of a question, in bytes.
const MAX_HEAD: u32 = 8 << 10;

/// How often the agent's state is told to those who watch it.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// Which profile a model of this name and shape is coded with, or why none can be had.
pub type ChooseProfile = Arc<dyn Fn(&str, KvShape) -> Result<Profile, String> + Send + Sync>;

/// What the role is given.
#[derive(Clone)]
pub struct Options {
    /// The agent's name: its pod's.
    pub name: String,
    /// Agents of different generations never pair.
    pub generation: String,
    /// Where peer control is listened on; port 0 is any free one.
    pub control: SocketAddr,
    /// Where links are listened on; port 0 is any free one, another for each attached engine.
    pub data: SocketAddr,
    /// Where peers are told that links are, where it isn't there.
    pub announced_data: Option<String>,
    /// What may be split and not sent yet, for all links together.
    pub send_buffer: Bytes,
    /// What the messages of peer control may take until they are answered, for all connections together.
    pub message_memory: Bytes,
    /// Most links, and most connections of peer control.
    pub most_peers: usize,
    /// Most transfers under way for one decode agent, and for all of them together.
    pub most_transfers: [usize; 2],
    /// Who may be a peer.
    pub security: Security,
    /// What carries links.
    pub carriage: Carriage,
    /// The profile of a model.
    pub choose_profile: ChooseProfile,
    /// Who may still come in, and what is in flight: transfers, until their last byte is with the decode agent.
    pub drain: Drain,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// How many cached blocks peers are told of.
    pub prefix_blocks: usize,
    /// The engine's own HTTP server, where it has one.
    pub upstream: Option<Upstream>,
}

/// The prefill role, listening.
#[derive(Debug)]
pub struct Prefill {
    control: TcpListener,
    control_address: SocketAddr,
    role: Role,
}

/// Why the role can't work.
#[derive(Debug, thiserror::Error)]
pub enum PrefillError {
    /// The address of peer control.
    #[error("can't listen for peers on {address}: {source}; configure another listen.peer")]
    Control {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The address of the links.
    #[error(transparent)]
    Data(#[from] ListenError),
    /// No thread.
    #[error("can't start the splitting thread: {0}")]
    Thread(io::Error),
    /// The server of peer control.
    #[error("peer control's server failed: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Why an attached engine can't be served.
#[derive(Debug, thiserror::Error)]
enum UnfitError {
    #[error("there is no profile for the engine's model: {0}")]
    Profile(String),
    #[error("the agent's name and facts are too long for a link: {0}")]
    Info(#[from] EncodeError),
}

/// What the role's loop is told.
#[derive(Debug)]
enum Signal {
    /// A peer asks who is here.
    Check(CheckRequest, oneshot::Sender<Result<CheckResponse, Answer>>),
    /// Somebody who need not fit asks who is here.
    Probe(oneshot::Sender<Result<ProbeFacts, Answer>>),
    /// A peer asks to be told what is cached here, and what is ahead.
    Watch(WatchRequest, oneshot::Sender<Result<Reader, Answer>>),
    /// A peer asks for KV.
    Asked(Box<Asked>),
    /// Nobody listens to this request's events any more.
    Unwatched(u64),
    /// Nothing of this request is to be expected any more: the engine's server says why.
    Unanswered(u64, Answer),
    /// The splitting thread has done a job.
    Split(Split),
    /// Something happened on this peer's link of this epoch.
    Link(Ticket, Epoch, Event),
    /// That link is over.
    LinkOver(Ticket),
}

impl Prefill {
    /// Listens for peers. Call it within a Tokio runtime.
    ///
    /// # Errors
    /// Where it can't.
    pub async fn bind(options: Options) -> Result<Self, PrefillError> {
        let address = options.control;
        let failed = |source| PrefillError::Control { address, source };
        let control = TcpListener::bind(address).await.map_err(failed)?;
        let control_address = control.local_addr().map_err(failed)?;
        let (signals, inbox) = mpsc::unbounded_channel();
        let done = signals.clone();
        let (room, counters) = (options.send_buffer, Arc::clone(&options.counters));
        let splitting = Splitting::start(Codec::detect(), room, counters, move |split| {
            // A role that has ended needs to know no more.
            drop(done.send(Signal::Split(split)));
        });
        let role = Role {
            clock: options.carriage.clock(),
            options,
            splitting: splitting.map_err(PrefillError::Thread)?,
            signals,
            inbox,
            next_request: 1,
        };
        Ok(Self {
            control,
            control_address,
            role,
        })
    }

    /// Where peer control is.
    pub fn control_address(&self) -> SocketAddr {
        self.control_address
    }

    /// Serves the engines that come, one after the other, until it is dropped or nobody is left to hand in commands; tells
    /// `status` how it is.
    ///
    /// # Errors
    /// Where links can't be listened for, or peer control's server fails.
    pub async fn run(
        self,
        mut engines: mpsc::Receiver<Attached>,
        mut commands: mpsc::UnboundedReceiver<Command>,
        status: watch::Sender<Status>,
    ) -> Result<(), PrefillError> {
        let Self {
            control, mut role, ..
        } = self;
        // A transfer's stream is open for as long as the transfer: those are bounded by themselves.
        let streams = role.options.most_transfers[0] + QUESTIONS;
        let connections =
            security::incoming(control, &role.options.security, role.options.most_peers);
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .concurrency_limit_per_connection(QUESTIONS)
            .max_concurrent_streams(u32::try_from(streams).ok())
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .http2_max_header_list_size(MAX_HEAD)
            .layer(Bound::new(
                role.options.message_memory,
                &role.options.counters,
            ))
            .add_service(Service::server(role.signals.clone()))
            .serve_with_incoming(connections);
        let serving = async {
            loop {
                tokio::select! {
                    Some(attached) = engines.recv() => {
                        role.serve(attached, &mut commands, &status).await?;
                    }
                    Some(signal) = role.inbox.recv() => refuse(signal),
                    command = commands.recv() => match command {
                        Some(command) => refuse_command(command, &no_engine()),
                        None => return Ok(()),
                    },
                }
            }
        };
        tokio::select! {
            served = server => Ok(served?),
            ended = serving => ended,
        }
    }
}

/// What outlives engines.
#[derive(Debug)]
struct Role {
    options: Options,
    clock: Clock,
    splitting: Splitting,
    signals: mpsc::UnboundedSender<Signal>,
    inbox: mpsc::UnboundedReceiver<Signal>,
    /// Never used again, so that what is late for one engine can't be meant for the next.
    next_request: u64,
}

impl Role {
    /// Serves one engine until it is gone.
    async fn serve(
        &mut self,
        attached: Attached,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        status: &watch::Sender<Status>,
    ) -> Result<(), PrefillError> {
        let Attached {
            engine,
            mut messages,
        } = attached;
        let (profile, identity, config) = match self.identify(&engine) {
            Ok(identified) => identified,
            Err(error) => {
                let why = error.to_string();
                engine.refuse(&why);
                status.send_replace(Status {
                    attach_error: Some(why),
                    ..Status::default()
                });
                return Ok(());
            }
        };
        let mut listener = Listener::bind(self.options.data, config)?;
        let announced = self.options.announced_data.clone();
        let data = announced.unwrap_or_else(|| announcement(listener.address()));
        let mut node = Node::new(self, engine, identity, profile, data);
        let mut statuses = interval(STATUS_INTERVAL);
        statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut posts = interval(board::PACE);
        posts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_posted = false;
        loop {
            tokio::select! {
                _ = posts.tick(), if !is_posted => {
                    node.post();
                    is_posted = true;
                    continue;
                }
                message = messages.next() => match message {
                    Some(Message::Detached(why)) => {
                        node.lose_engine(&why);
                        break;
                    }
                    Some(message) => node.hear(message),
                    None => break,
                },
                Some(signal) = self.inbox.recv() => node.handle(signal),
                command = commands.recv() => match command {
                    Some(command) => node.command(command),
                    None => break,
                },
                connected = listener.accept() => node.connect(connected),
                () = tokio::time::sleep_until(node.next_deadline()) => node.expire(),
                _ = statuses.tick() => node.tell_status(status),
            }
            is_posted = false;
        }
        status.send_replace(Status::default());
        self.next_request = node.next_request();
        Ok(())
    }

    fn identify(
        &self,
        engine: &Engine,
    ) -> Result<(Arc<Profile>, Identity, LinkConfig), UnfitError> {
        let (info, layout) = (engine.info(), engine.pool().layout());
        let profile = (self.options.choose_profile)(profile::named_by(info), layout.shape());
        let profile = profile.map_err(UnfitError::Profile)?;
        let Options {
            name, generation, ..
        } = &self.options;
        let identity = Identity::new(name, info, layout, &profile, generation);
        engine.code_with(&profile);
        let config = LinkConfig::new(self.clock, identity.to_peer_info())?
            .with_credentials(self.options.security.data().cloned())
            .counting_insecure(self.options.security.data_failures().clone());
        let config = self.options.carriage.carry(
            config,
            &self.options.counters.links,
            engine.pool().lendable(),
        );
        Ok((Arc::new(profile), identity, config))
    }
}

/// Where peers are told that links are: at the host that they reached, where it is every host of this machine.
fn announcement(listening: SocketAddr) -> String {
    if listening.ip().is_unspecified() {
        format!(":{}", listening.port())
    } else {
        listening.to_string()
    }
}

/// Without an engine nothing can be done.
fn refuse(signal: Signal) {
    let status = Answer::unavailable(no_engine().to_string());
    match signal {
        Signal::Check(_, answer) => drop(answer.send(Err(status))),
        // That, too, is worth knowing.
        Signal::Probe(answer) => drop(answer.send(Ok(ProbeFacts {
            unix_ns: crate::clock::unix_ns(),
            ..ProbeFacts::default()
        }))),
        Signal::Watch(_, answer) => drop(answer.send(Err(status))),
        Signal::Asked(asked) => drop(asked.answer.send(Err(status))),
        Signal::Unanswered(..)
        | Signal::Unwatched(_)
        | Signal::Split(_)
        | Signal::Link(..)
        | Signal::LinkOver(..) => {}
    }
}

fn refuse_command(command: Command, why: &Refusal) {
    match command {
        Command::Generate(_, events) => drop(events.send(Generated::Failed(why.clone()))),
        Command::Warm(_, done) | Command::Forget(done) => drop(done.send(Err(why.clone()))),
    }
}

fn no_engine() -> Refusal {
    Refusal::Unavailable("no engine is attached to this prefill agent: try another".to_owned())
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("control", &self.control)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}
