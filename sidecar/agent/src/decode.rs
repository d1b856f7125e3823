//! The decode role: requests in, KV fetched and merged, tokens out.
//!
//! One task owns everything that is decided here, and never waits for anything but its inboxes: commands of the endpoint,
//! messages of the engine, news of peers and of the codec's thread. What may be written when is [`blocks`]' affair; what
//! is known of peers, [`peers`](crate::peers)'. It refuses to schedule: which requests run is the engine's choice, and
//! those that it doesn't take wait in the order in which they came.
//!
//! ```text
//!  Generate ─► Submit ──► Expect ─► Transfer, segments ─► merge ─► AnchorReady .. FullReady ─► Finished ─► answer
//!                └► Refused: wait, and again     └► anything wrong: KvFailed, the engine computes ─┘
//! ```

mod answer;
mod arrivals;
mod asking;
mod attempt;
mod blocks;
mod commands;
mod loading;
mod merging;
mod messages;
mod pace;
mod request;
mod spans;
mod status;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::{KvShape, Profile};
use lynx_proto::engine::v1::Report;
use lynx_proto::operator::v1::{PeerAddress, Policy};
use lynx_telemetry::Context;
use lynx_transport::{Clock, ReceiverEvent};
use lynx_units::{TransferId, Width};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use self::asking::Told;
use self::merging::{Done, Merging};
use self::request::{Kv, Request};
use self::terms::Terms;
use crate::carriage::Carriage;
use crate::clients::Clients;
use crate::config::{Config, Transfer};
use crate::control::Status;
use crate::counters::{Counters, Pool};
use crate::drafting::Drafting;
use crate::drain::Drain;
use crate::peers::{LinkSettings, News, Peers, What};
use crate::requests::{Command, Refusal};
use crate::security::Security;
use crate::session::{Attached, Engine, Messages};

/// How often waiting requests' deadlines and links' figures are looked at.
const TICK: Duration = Duration::from_millis(10);
/// How often the agent's state is told to those who watch it.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// What the role is told by the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This agent's name, unique among the agents of its deployment: what its links are known by.
    pub name: String,
    /// Agents of different generations never pair.
    pub generation: String,
    /// How KV travels where neither a request nor the operator says.
    pub transfer: Transfer,
    /// The profile's file, where there is one.
    pub profile: Option<PathBuf>,
    /// Most requests in flight, waiting ones included.
    pub queue: usize,
    /// Prefill agents that are there whatever the operator says.
    pub peers: Vec<PeerAddress>,
    /// Who may be a peer.
    pub security: Security,
    /// What carries links.
    pub carriage: Carriage,
    /// The node's value of the deployment's topology label; empty where there is none.
    pub topology: String,
}

/// What the role shares with the rest of the agent.
#[derive(Debug)]
pub struct Inputs {
    /// What clients want.
    pub commands: mpsc::UnboundedReceiver<Command>,
    /// What clients want of an engine that has a server of its own.
    pub clients: Clients,
    /// Engines, one after the other.
    pub engines: mpsc::Receiver<Attached>,
    /// The operator's peers; `None` before it has told any.
    pub peers: watch::Receiver<Option<Vec<PeerAddress>>>,
    /// The operator's policy; `None` before it has told one.
    pub policy: watch::Receiver<Option<Policy>>,
    /// What transfers' spans are linked to.
    pub look: watch::Receiver<Context>,
    /// Whether new requests are taken.
    pub drain: Drain,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Where the agent's state is told.
    pub status: watch::Sender<Status>,
    /// What links' deadlines are told by.
    pub clock: Clock,
}

impl Settings {
    /// What of an agent's configuration this role uses. `life` is different for each life of the process: a new one's links
    /// are not those of the old.
    pub fn new(config: &Config, life: &str, security: &Security, carriage: &Carriage) -> Self {
        let peer = |address: &String| PeerAddress {
            address: address.clone(),
            ..PeerAddress::default()
        };
        Self {
            name: format!("{} ({life})", config.pod.name),
            generation: config.deployment.generation.clone(),
            transfer: config.transfer.clone(),
            profile: config.transfer.profile.clone(),
            queue: config.engine.queue,
            peers: config.peers.iter().map(peer).collect(),
            security: security.clone(),
            carriage: carriage.clone(),
            topology: config.deployment.topology.clone(),
        }
    }
}

/// Works until the endpoint and the engine socket are gone.
///
/// # Errors
/// The codec's thread can't be started.
pub async fn run(settings: Settings, inputs: Inputs) -> io::Result<()> {
    let Inputs {
        mut commands,
        clients,
        mut engines,
        mut peers,
        mut policy,
        mut look,
        drain,
        counters,
        status,
        clock,
    } = inputs;
    let (signals, mut inbox) = mpsc::unbounded_channel();
    // Dropped after the decoder: the engine's stream ends when nothing writes into its blocks any more.
    let mut messages: Option<Messages> = None;
    let mut decoder = Decoder::new(settings, clock, (drain, clients), counters, status, signals)?;
    let (mut ticks, mut reports) = (every(TICK), every(STATUS_INTERVAL));
    decoder.set_peers(peers.borrow_and_update().clone());
    decoder.set_policy(policy.borrow_and_update().clone());
    decoder.look = look.borrow_and_update().clone();
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => decoder.command(command),
                None => return Ok(()),
            },
            attached = engines.recv(), if messages.is_none() => match attached {
                Some(attached) => {
                    decoder.attach(attached.engine);
                    messages = Some(attached.messages);
                }
                None => return Ok(()),
            },
            message = next(&mut messages) => match message {
                Some(message) => decoder.message(message),
                None => messages = None,
            },
            Some(signal) = inbox.recv() => decoder.signal(signal),
            Ok(()) = peers.changed() => {
                let told = peers.borrow_and_update().clone();
                decoder.set_peers(told);
            }
            Ok(()) = look.changed() => decoder.look = look.borrow_and_update().clone(),
            Ok(()) = policy.changed() => {
                let told = policy.borrow_and_update().clone();
                decoder.set_policy(told);
            }
            _ = ticks.tick(), if decoder.is_loading() => decoder.tick(),
            _ = reports.tick() => decoder.tell_status(),
        }
    }
}

fn every(time: Duration) -> Interval {
    let mut interval = interval(time);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn next(messages: &mut Option<Messages>) -> Option<crate::session::Message> {
    match messages {
        Some(messages) => messages.next().await,
        None => std::future::pending().await,
    }
}

/// What the role tells itself from other tasks and threads.
#[derive(Debug)]
enum Signal {
    Peer(News),
    /// By the prefill agent that sends this transfer.
    Told(TransferId, Told),
    Merged(Done),
    /// The client of the request with this key is gone.
    ClientGone(u64),
}

/// The role's state.
#[derive(Debug)]
struct Decoder {
    settings: Settings,
    clients: Clients,
    terms: Terms,
    drafting: Drafting,
    clock: Clock,
    drain: Drain,
    counters: Arc<Counters>,
    status: watch::Sender<Status>,
    signals: mpsc::UnboundedSender<Signal>,
    session: Option<Session>,
    /// Why the last engine that attached can't be used, where it can't.
    unfit: Option<String>,
    peers: Peers,
    merging: Merging,
    /// What the engine has, by the number that it knows.
    requests: BTreeMap<u64, Request>,
    /// What the engine has no room for, in the order of arrival.
    waiting: VecDeque<Request>,
    /// Choices of a prompt whose first choice is bringing the KV.
    followers: Vec<Request>,
    transfers: HashMap<TransferId, u64>,
    numbers: Numbers,
    /// Questions to forget everything: that wait for merges to end, and that the engine has.
    forgetting: Vec<oneshot::Sender<Result<(), Refusal>>>,
    forgotten: VecDeque<Vec<oneshot::Sender<Result<(), Refusal>>>>,
    /// The anchor's mean width of the last transfer.
    last_width: Option<Width>,
    /// What transfers' spans are linked to.
    look: Context,
}

/// An attached engine.
#[derive(Debug)]
struct Session {
    engine: Engine,
    profile: Arc<Profile>,
    shape: KvShape,
    report: Report,
}

/// What comes next; none is used twice in a process.
#[derive(Debug, Default)]
struct Numbers {
    key: u64,
    request: u64,
    transfer: u64,
}

impl Session {
    /// K and V of one token in all layers as BF16.
    fn bytes_per_token(&self) -> usize {
        self.shape.layers * self.shape.kv_heads * self.shape.head_dim * 4
    }
}

impl Decoder {
    fn new(
        settings: Settings,
        clock: Clock,
        (drain, clients): (Drain, Clients),
        counters: Arc<Counters>,
        status: watch::Sender<Status>,
        signals: mpsc::UnboundedSender<Signal>,
    ) -> io::Result<Self> {
        let budget = settings.transfer.receive_buffer;
        let merge = settings.transfer.merge_buffer.get();
        counters.memory.of(Pool::Merge).set_limit(merge);
        let links = LinkSettings {
            security: settings.security.clone(),
            carriage: settings.carriage.clone(),
            clock,
            budget,
            counters: Arc::clone(&counters),
            topology: settings.topology.clone(),
            prefix_blocks: settings.transfer.prefix_blocks,
        };
        let merged = signals.clone();
        let news = signals.clone();
        Ok(Self {
            terms: Terms::new(settings.transfer.clone()),
            settings,
            clients,
            drafting: Drafting::new(),
            clock,
            drain,
            counters,
            status,
            session: None,
            unfit: None,
            peers: Peers::new(links, move |told| news.send(Signal::Peer(told)).is_ok()),
            merging: Merging::start(move |done| drop(merged.send(Signal::Merged(done))))?,
            signals,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            followers: Vec::new(),
            transfers: HashMap::new(),
            numbers: Numbers::default(),
            forgetting: Vec::new(),
            forgotten: VecDeque::new(),
            last_width: None,
            look: Context::new(),
        })
    }

    /// These are the operator's peers; the configuration's own are there besides.
    fn set_peers(&mut self, told: Option<Vec<PeerAddress>>) {
        let mut named = self.settings.peers.clone();
        named.extend(told.unwrap_or_default());
        self.peers.set_named(named);
    }

    fn set_policy(&mut self, told: Option<Policy>) {
        self.terms.set_policy(told.unwrap_or_default());
        let depth = self.terms.max_draft_tokens();
        self.drafting.set_depth_limit(depth);
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Peer(news) => {
                let is_of_state = !matches!(&news.what, What::Link(_, event) if !is_end(event));
                if let Some(news) = self.peers.handle(news) {
                    self.link_news(news);
                }
                if is_of_state {
                    self.tell_status();
                }
            }
            Signal::Told(transfer, told) => self.told(transfer, told),
            Signal::Merged(done) => self.merged(done),
            Signal::ClientGone(key) => self.client_gone(key),
        }
    }

    /// Whether any request waits for KV.
    fn is_loading(&self) -> bool {
        self.requests
            .values()
            .any(|request| matches!(request.kv, Kv::Loading(_)))
    }
}

/// The agent ends in the middle of work: clients are told what they can do, and not that something broke.
impl Drop for Decoder {
    fn drop(&mut self) {
        let waiting = self.waiting.iter().chain(&self.followers);
        let requests = self.requests.values().chain(waiting);
        for request in requests.filter(|request| !request.aborted) {
            request.answer.refuse(Refusal::Unavailable(
                "this agent ends before the answer did: try again, another replica takes it"
                    .to_owned(),
            ));
        }
        self.clients.end();
    }
}

const fn is_end(event: &ReceiverEvent) -> bool {
    matches!(event, ReceiverEvent::Broken(_))
}

impl Numbers {
    fn key(&mut self) -> u64 {
        self.key += 1;
        self.key
    }

    fn request(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    fn transfer(&mut self) -> TransferId {
        self.transfer += 1;
        TransferId(self.transfer)
    }
}
