//! One attached engine, its links, and what is under way.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::Profile;
use lynx_proto::engine::v1::{Abort, Forget, Prefill, Release, Report, Sampling, from_agent};
use lynx_proto::operator::v1::Link;
use lynx_proto::peer::v1::{CheckRequest, CheckResponse, ProbeFacts};
use lynx_tls::PeerIdentity;
use lynx_transport::{Clock, Connected, SenderHandle, Ticket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::Status;

use super::board::Board;
use super::service::Asked;
use super::serving::{Owed, Serving};
use super::splitting::Splitting;
use super::{Role, Signal, refuse_command};
use crate::carriage::{Carriage, Carried, few_cards};
use crate::clock;
use crate::control::Status as AgentStatus;
use crate::counters::Counters;
use crate::drain::Drain;
use crate::identity::Identity;
use crate::prefix::Salt;
use crate::requests::{Command, Refusal};
use crate::security::Security;
use crate::seldom::{Seldom, more};
use crate::session::Engine;
use crate::upstream::Upstream;

/// Where no transfer has a deadline, look again after this.
const IDLE: Duration = Duration::from_secs(3600);

/// The role while one engine is attached.
pub(super) struct Node {
    pub(super) engine: Engine,
    pub(super) identity: Identity,
    pub(super) profile: Arc<Profile>,
    pub(super) clock: Clock,
    pub(super) splitting: Splitting,
    pub(super) drain: Drain,
    pub(super) counters: Arc<Counters>,
    /// By what only the two sides of each know.
    pub(super) links: BTreeMap<Ticket, Linked>,
    pub(super) serving: HashMap<u64, Serving>,
    pub(super) most_transfers: [usize; 2],
    most_links: usize,
    /// What strangers can bring about is said now and then: links that come up, links that find no room, refused transfers.
    pub(super) lines: Lines,
    /// What was asked before its caller's link was known here, and until when that is waited for.
    pub(super) early: Vec<(Instant, Asked)>,
    /// What the engine said last about its load.
    pub(super) report: Report,
    /// What peers may know.
    pub(super) board: Board,
    /// What the engine takes for a token of a prompt, in nanoseconds; 0 before the first was measured.
    pub(super) token_time_ns: u64,
    /// Where peers are told that links are.
    data: String,
    pub(super) signals: mpsc::UnboundedSender<Signal>,
    /// The engine's own HTTP server, where it has one.
    pub(super) upstream: Option<Upstream>,
    security: Security,
    carriage: Carriage,
    /// Who asked to forget, and is to be told of it: before the engine is asked, and after.
    to_forget: Vec<oneshot::Sender<Result<(), Refusal>>>,
    forgetting: Vec<oneshot::Sender<Result<(), Refusal>>>,
    next_request: u64,
}

/// A decode agent's link.
pub(super) struct Linked {
    /// What it calls itself.
    pub(super) name: String,
    pub(super) handle: SenderHandle,
    /// Who its certificate says that it is; nobody where links are in clear.
    pub(super) identity: Option<PeerIdentity>,
    /// What carries it.
    carried: Carried,
    /// Where it comes from.
    from: IpAddr,
}

/// What is said now and then.
pub(super) struct Lines {
    up: Seldom,
    full: Seldom,
    pub(super) refused: Seldom,
}

impl Default for Lines {
    fn default() -> Self {
        let second = || Seldom::new(Duration::from_secs(1));
        Self {
            up: second(),
            full: Seldom::new(Duration::from_secs(60)),
            refused: second(),
        }
    }
}

impl Node {
    pub(super) fn new(
        role: &Role,
        engine: Engine,
        identity: Identity,
        profile: Arc<Profile>,
        data: String,
    ) -> Self {
        let board = Board::new(Salt::of(&identity), role.options.prefix_blocks);
        Self {
            board,
            token_time_ns: 0,
            engine,
            identity,
            profile,
            clock: role.clock,
            splitting: role.splitting.clone(),
            drain: role.options.drain.clone(),
            counters: Arc::clone(&role.options.counters),
            links: BTreeMap::new(),
            serving: HashMap::new(),
            most_transfers: role.options.most_transfers,
            most_links: role.options.most_peers,
            lines: Lines::default(),
            early: Vec::new(),
            report: Report::default(),
            data,
            signals: role.signals.clone(),
            upstream: role.options.upstream.clone(),
            security: role.options.security.clone(),
            carriage: role.options.carriage.clone(),
            to_forget: Vec::new(),
            forgetting: Vec::new(),
            next_request: role.next_request,
        }
    }

    /// The first number that no request has had.
    pub(super) fn next_request(&self) -> u64 {
        self.next_request
    }

    /// Takes a decode agent's link, beside whatever other link there is of the same name: a name is no proof, and whoever
    /// gives another's must not end that one's link. One that has come back has lost its old link, and that ends by itself.
    pub(super) fn connect(&mut self, connected: Connected) {
        let name = connected.peer().name().to_owned();
        let (ticket, epoch) = (connected.ticket().clone(), connected.epoch());
        let identity = connected.identity().cloned();
        let (address, from) = (connected.address(), connected.address().ip());
        if !self.has_room_for_link(from) {
            if let Some(unsaid) = self.lines.full.happened(Instant::now()) {
                tracing::warn!(
                    unsaid = more(unsaid),
                    %address,
                    "a link was closed: there are as many as there may be, or half of them from one address; raise transfer.maxPeers"
                );
            }
            return;
        }
        let carried = Carried::of(&connected, &self.security, &self.carriage);
        if let Some(unsaid) = self.lines.up.happened(Instant::now()) {
            let unsaid = more(unsaid);
            let by = carried.by;
            match &carried.without_rdma {
                None => {
                    tracing::info!(peer = name, %address, by, unsaid, "a decode agent's link is up")
                }
                Some(why) => {
                    tracing::warn!(peer = name, %address, by, unsaid, "a decode agent's link is up, without RDMA: {why}");
                }
            }
            if let Some(few) = carried.few_cards {
                tracing::warn!(peer = name, %address, "a decode agent's link is slower than it may be: {}", few_cards(few));
            }
        }
        let (handle, mut events) = connected.into_sender();
        let counted = self.counters.links.sending(&handle, &carried);
        let linked = Linked {
            name,
            handle,
            identity,
            carried,
            from,
        };
        self.links.insert(ticket.clone(), linked);
        self.answer_early(&ticket);
        let signals = self.signals.clone();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                drop(signals.send(Signal::Link(ticket.clone(), epoch, event)));
            }
            drop(counted);
            drop(signals.send(Signal::LinkOver(ticket)));
        });
    }

    /// Whether there may be one more link from there.
    fn has_room_for_link(&self, from: IpAddr) -> bool {
        let own = self.links.values().filter(|linked| linked.from == from);
        self.links.len() < self.most_links && own.count() < self.most_links.div_ceil(2)
    }

    pub(super) fn handle(&mut self, signal: Signal) {
        match signal {
            Signal::Check(request, answer) => drop(answer.send(self.check(&request))),
            Signal::Probe(answer) => drop(answer.send(Ok(self.introduce()))),
            Signal::Watch(request, answer) => drop(answer.send(self.watch(&request))),
            Signal::Asked(asked) => self.asked(*asked),
            Signal::Unwatched(request) => self.unwatched(request),
            Signal::Unanswered(request, why) => self.unanswered(request, why),
            Signal::Split(split) => self.split(split),
            Signal::Link(link, epoch, event) => self.on_link(&link, epoch, event),
            Signal::LinkOver(link) => drop(self.links.remove(&link)),
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Warm(prompt, done) => self.warm(prompt, done),
            Command::Forget(done) => self.forget(done),
            Command::Generate(..) => {
                let why = "a prefill agent answers no requests: ask a decode agent".to_owned();
                refuse_command(command, &Refusal::Invalid(why));
            }
        }
    }

    fn check(&self, request: &CheckRequest) -> Result<CheckResponse, Status> {
        self.fits(request.caller.as_ref())?;
        Ok(CheckResponse {
            callee: Some(self.identity.to_proto()),
            data_address: self.data.clone(),
            draining: self.drain.is_draining(),
        })
    }

    /// What whoever probes is told: nothing of the model.
    fn introduce(&self) -> ProbeFacts {
        ProbeFacts {
            name: self.identity.name().to_owned(),
            unix_ns: clock::unix_ns(),
            data_address: self.data.clone(),
            draining: self.drain.is_draining(),
        }
    }

    /// Whether a caller fits this agent.
    pub(super) fn fits(
        &self,
        caller: Option<&lynx_proto::peer::v1::Identity>,
    ) -> Result<(), Status> {
        let caller =
            caller.ok_or_else(|| Status::invalid_argument("the caller does not say who it is"))?;
        match self.identity.difference(caller) {
            None => Ok(()),
            Some(difference) => Err(Status::failed_precondition(difference)),
        }
    }

    fn warm(&mut self, prompt: Vec<u32>, done: oneshot::Sender<Result<(), Refusal>>) {
        let most = self.engine.info().context_tokens as usize;
        if prompt.is_empty() || prompt.len() > most {
            let why = format!(
                "a prompt must have 1 to {most} tokens, not {}",
                prompt.len()
            );
            drop(done.send(Err(Refusal::Invalid(why))));
            return;
        }
        let request = self.number();
        let prefill = Prefill {
            request,
            tokens: prompt,
            from_token: 0,
            sampling: Some(greedy()),
            trace: None,
        };
        let posted = self.prefill(prefill);
        let serving = Serving::new(Owed::Warmed(done), posted);
        self.serving.insert(request, serving);
    }

    fn forget(&mut self, done: oneshot::Sender<Result<(), Refusal>>) {
        let why = "the prefill agent was told to forget every prompt";
        let requests: Vec<u64> = self.serving.keys().copied().collect();
        for request in requests {
            self.fail(request, Status::cancelled(why));
        }
        self.to_forget.push(done);
        self.ask_to_forget();
    }

    /// The engine has forgotten.
    pub(super) fn forgotten(&mut self) {
        if !self.forgetting.is_empty() {
            drop(self.forgetting.remove(0).send(Ok(())));
        }
    }

    /// The engine is gone, and everything with it.
    pub(super) fn lose_engine(&mut self, why: &str) {
        let why = format!("the prefill engine is gone: {why}");
        let requests: Vec<u64> = self.serving.keys().copied().collect();
        for request in requests {
            self.fail(request, Status::unavailable(why.clone()));
        }
        let asked = self.to_forget.drain(..).chain(self.forgetting.drain(..));
        for done in asked {
            drop(done.send(Err(Refusal::Unavailable(why.clone()))));
        }
    }

    /// Tells how this agent is, where that has changed.
    pub(super) fn tell_status(&self, status: &watch::Sender<AgentStatus>) {
        let owed = self
            .serving
            .values()
            .filter_map(|serving| match &serving.owed {
                Owed::Transfer(transfer) => Some(transfer.coding.bf16_bytes()),
                Owed::Nothing | Owed::Warmed(_) => None,
            });
        let now = AgentStatus {
            ready: true,
            running: self.report.running,
            waiting: self.report.waiting,
            free_blocks: self.report.free_blocks,
            preemptions: self.report.preemptions,
            pending_kv_bytes: owed.sum(),
            links: self.link_statuses(),
            token_time_ns: self.report.token_time_ns,
            attach_error: None,
            anchor_eighths: 0,
        };
        status.send_if_modified(|told| {
            let changed = *told != now;
            *told = now;
            changed
        });
    }

    /// What is known of the links, one per name: an agent that has come back may have its lost link still.
    fn link_statuses(&self) -> Vec<Link> {
        let each = self.links.values();
        let each = each.map(|linked| (&linked.name, link_status(linked)));
        each.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// When the first transfer must be with the transport.
    pub(super) fn next_deadline(&self) -> Instant {
        let deadlines = self.serving.values().filter_map(Serving::deadline);
        let deadlines = deadlines.chain(self.early.iter().map(|(until, _)| *until));
        deadlines.min().unwrap_or_else(|| Instant::now() + IDLE)
    }

    /// Fails what is late.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        self.answer_unlinked(now);
        let late = |serving: &Serving| serving.deadline().is_some_and(|due| due <= now);
        let late = self.serving.iter().filter(|(_, serving)| late(serving));
        let late: Vec<u64> = late.map(|(request, _)| *request).collect();
        for request in late {
            let why = "the prompt was not computed and sent in the time that it had: the decode agent's transfer.deadline";
            self.fail(request, Status::deadline_exceeded(why));
        }
    }

    /// A number for the next request.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next_request;
        self.next_request += 1;
        number
    }

    /// Says something to the engine. One that is gone says so in its last message.
    pub(super) fn say(&self, kind: from_agent::Kind) {
        self.engine.send(kind).ok();
    }

    /// Lets go of a request as far as that can be.
    pub(super) fn settle(&mut self, request: u64) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        if serving.queued == 0 && std::mem::take(&mut serving.to_abort) && !serving.finished {
            if let Some(posted) = serving.posted.take() {
                posted.abort();
            }
            self.engine
                .send(from_agent::Kind::Abort(Abort { request }))
                .ok();
        }
        if serving.may_release() {
            if let Some(transfer) = serving.transfer() {
                transfer.work = None;
            }
            serving.blocks = None;
            self.engine
                .send(from_agent::Kind::Release(Release { request }))
                .ok();
        }
        if self.serving.get(&request).is_some_and(Serving::is_over) {
            self.serving.remove(&request);
        }
        self.ask_to_forget();
    }

    /// Has the engine forget, once the splitting thread has let go of all blocks.
    fn ask_to_forget(&mut self) {
        let is_idle = self.serving.values().all(|serving| serving.queued == 0);
        if is_idle && !self.to_forget.is_empty() {
            for done in self.to_forget.drain(..) {
                self.forgetting.push(done);
                self.engine.send(from_agent::Kind::Forget(Forget {})).ok();
            }
        }
    }
}

/// What is known of a link that is up.
fn link_status(linked: &Linked) -> Link {
    let Linked {
        name,
        handle,
        carried,
        ..
    } = linked;
    let estimate = handle.stats().estimate;
    // Links are known by the peer's name and its life; people know pods.
    let pod = name.split_once(" (").map_or(name.as_str(), |(pod, _)| pod);
    Link {
        peer: pod.to_owned(),
        up: true,
        transport: carried.by.to_owned(),
        rate_bps: estimate.rate.bits_per_second(),
        round_trip_ns: estimate
            .round_trip
            .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        error: carried.without_rdma.clone().unwrap_or_default(),
    }
}

/// How the first token of a prompt is chosen that nobody reads.
fn greedy() -> Sampling {
    Sampling {
        top_p: 1.0,
        ..Sampling::default()
    }
}
