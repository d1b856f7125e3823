//! A decode agent between an engine and a prefill agent, and what its clients see.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::Kind;
use lynx_policy::{Bounds, Fidelity, Objective};
use lynx_proto::engine::v1::{Sampling, Tokens, TraceContext, from_agent};
use lynx_proto::operator::v1::Link;
use lynx_units::{Bytes, Width};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::engine::{self, COMPUTED, Engine};
use super::prefill::Prefill;
use super::*;
use crate::carriage::Carriage;
use crate::clients::Clients;
use crate::config::{Anchor, Role, Transfer};
use crate::control::{Sinks, told};
use crate::counters::KvFailure;
use crate::method::Method;
use crate::pool::{Access, Readable};
use crate::requests::{Finish, Generate, Generated, Input, Requests};
use crate::security::Security;
use crate::session::{Options, Socket};
use crate::testing;
use crate::timeline::Event;

pub(super) const TOKENS: u32 = 300;

/// A decode agent with its engine and a prefill agent.
pub(super) struct World {
    pub(super) requests: Requests,
    pub(super) clients: Clients,
    has_http: bool,
    pub(super) engine: Option<Engine>,
    pub(super) prefill: Option<Prefill>,
    pub(super) counters: Arc<Counters>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) drain: Drain,
    pub(super) sinks: Sinks,
    pub(super) directory: TempDir,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn transfer() -> Transfer {
    let width = |bits| Width::from_bits(bits).unwrap();
    Transfer {
        fidelity: Fidelity::Exact,
        objective: Objective::Verified,
        anchor: Anchor::Adaptive(Bounds::new(width(3), width(8)).unwrap()),
        profile: None,
        max_draft_tokens: 64,
        allow_provisional: true,
        deadline: Duration::from_secs(60),
        receive_buffer: Bytes::from_mib(256),
        merge_buffer: Bytes::from_mib(256),
        send_buffer: Bytes::from_mib(256),
        per_peer: 256,
        message_memory: Bytes::from_mib(64),
        max_peers: 256,
        most: 1024,
        prefix_blocks: 1000,
    }
}

pub(super) fn settings(prefill: &Prefill) -> Settings {
    Settings {
        name: "decode-0 (1)".to_owned(),
        generation: "gen-1".to_owned(),
        transfer: transfer(),
        profile: None,
        queue: 4,
        security: Security::default(),
        carriage: Carriage::default(),
        peers: vec![PeerAddress {
            address: prefill.address.to_string(),
            ..PeerAddress::default()
        }],
        topology: String::new(),
    }
}

pub(super) fn options(directory: &Path) -> Options {
    Options {
        socket: directory.join("engine.sock"),
        shared_directory: directory.to_owned(),
        role: Role::Decode,
        has_http: false,
        gpu: crate::pool::GpuOptions::default(),
    }
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With everything up and linked.
    pub(super) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = Self::without_engine(change).await;
        world.attach().await;
        world.linked(true).await;
        world
    }

    /// With everything up and linked, and an engine that has a server of its own.
    pub(super) async fn with_server(change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = Self::build(&Carriage::default(), change, true).await;
        world.attach().await;
        world
    }

    /// With everything up and linked, by what each of the two agents has, the prefill agent's first.
    pub(super) async fn carried(carriages: [Carriage; 2]) -> (Self, Link) {
        let [theirs, ours] = carriages;
        let mut world = Self::build(&theirs, |own| own.carriage = ours, false).await;
        world.attach().await;
        let link = world.linked(true).await;
        (world, link)
    }

    pub(super) async fn without_engine(change: impl FnOnce(&mut Settings)) -> Self {
        Self::build(&Carriage::default(), change, false).await
    }

    async fn build(
        carriage: &Carriage,
        change: impl FnOnce(&mut Settings),
        has_http: bool,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let prefill_directory = directory.path().join("prefill");
        std::fs::create_dir(&prefill_directory).unwrap();
        let prefill = Prefill::start_by(carriage, &prefill_directory, TOKENS, "gen-1").await;
        let mut settings = settings(&prefill);
        change(&mut settings);
        let (socket, engines) = Socket::open(Options {
            has_http,
            ..options(directory.path())
        })
        .unwrap();
        let (requests, commands) = Requests::new();
        let clients = Clients::default();
        let (sinks, told) = told();
        let (status_sender, status) = watch::channel(Status::default());
        let (drain, counters) = (Drain::new(), Arc::<Counters>::default());
        let inputs = Inputs {
            commands,
            clients: clients.clone(),
            engines,
            peers: told.peers,
            policy: told.policy,
            look: told.look,
            drain: drain.clone(),
            counters: Arc::clone(&counters),
            status: status_sender,
            clock: Clock::start(),
        };
        let tasks = vec![
            tokio::spawn(async move { socket.run().await.unwrap() }),
            tokio::spawn(async move { run(settings, inputs).await.unwrap() }),
        ];
        Self {
            requests,
            has_http,
            clients,
            engine: None,
            prefill: Some(prefill),
            counters,
            status,
            drain,
            sinks,
            directory,
            tasks,
        }
    }

    pub(super) async fn attach(&mut self) {
        let socket = self.directory.path().join("engine.sock");
        let directory = self.directory.path();
        self.engine = Some(engine::start(&socket, directory, !self.has_http).await);
        self.status.wait_for(|status| status.ready).await.unwrap();
    }

    pub(super) async fn linked(&mut self, up: bool) -> Link {
        let is = |link: &Link| link.up == up && (up || link.error != "not met yet");
        let status = self
            .status
            .wait_for(|status| status.links.first().is_some_and(is))
            .await;
        status.unwrap().links[0].clone()
    }

    /// Waits until the link is in this life, counted from one. Up alone could still be the old one: transfers are told of its
    /// end before it is.
    pub(super) async fn linked_anew(&mut self, life: u64) {
        let links = &self.counters.links;
        let anew = |status: &Status| {
            let sums = links.sums();
            let is_up = status.links.first().is_some_and(|link| link.up);
            is_up && sums.opened >= life && sums.ended + 1 >= life
        };
        self.status.wait_for(anew).await.unwrap();
    }

    /// Waits until so many links are up.
    pub(super) async fn all_linked(&mut self, count: usize) {
        let up = |status: &Status| status.links.iter().filter(|link| link.up).count() == count;
        self.status.wait_for(up).await.unwrap();
    }

    pub(super) fn engine(&self) -> &engine::Seen {
        &self.engine.as_ref().unwrap().seen
    }

    pub(super) fn prefill(&self) -> &Prefill {
        self.prefill.as_ref().unwrap()
    }

    pub(super) fn generate(&self, method: Option<Method>) -> UnboundedReceiver<Generated> {
        self.requests.generate(request(method))
    }

    /// Has one request answered by the engine's own computation, for the reason that is told it.
    pub(super) async fn falls_back(&self, kind: KvFailure, why: &str) {
        let answer = finish(self.generate(None)).await;
        let reason = self
            .engine()
            .said()
            .into_iter()
            .find_map(|said| match said {
                from_agent::Kind::KvFailed(failed) => Some(failed.reason),
                _ => None,
            });
        let reason = reason.unwrap();
        assert!(reason.contains(why), "{reason}");
        let tokens: Vec<u32> = answer.tokens[answer.tokens.len() - 2..].to_vec();
        assert_eq!(tokens, COMPUTED[1..], "the engine computes");
        assert_eq!(answer.finish, Finish::Stop);
        assert_eq!(self.counters.kv_failures.of(kind).get(), 1);
        assert_eq!(self.counters.requests_local.get(), 1);
        assert_eq!(self.counters.requests_finished.get(), 1);
    }
}

pub(super) fn request(method: Option<Method>) -> Generate {
    Generate {
        input: Arc::new(Input::Tokens(Tokens {
            ids: (0..TOKENS).collect(),
        })),
        max_tokens: 8,
        sampling: Sampling::default(),
        stop: Vec::new(),
        ignore_eos: true,
        method,
        anchor: None,
        timeline: true,
        trace: TraceContext::default(),
        group: 0,
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) tokens: Vec<u32>,
    pub(super) events: Vec<Event>,
    pub(super) finish: Finish,
    pub(super) memory: [Option<u64>; 2],
    pub(super) has_anchor: bool,
}

pub(super) async fn finish(mut answer: UnboundedReceiver<Generated>) -> Answer {
    let (mut tokens, mut events) = (Vec::new(), Vec::new());
    loop {
        match answer.recv().await.expect("an answer ends with its end") {
            Generated::Token {
                token,
                provisional: false,
                index,
                ..
            } => {
                assert_eq!(index as usize, tokens.len());
                tokens.push(token);
            }
            Generated::Happened(event) => events.push(event),
            Generated::Finished {
                reason,
                completion_tokens,
                anchor,
                memory_bytes,
                ..
            } => {
                assert_eq!(completion_tokens as usize, tokens.len());
                return Answer {
                    tokens,
                    events,
                    finish: reason,
                    memory: memory_bytes,
                    has_anchor: anchor.is_some(),
                };
            }
            Generated::Failed(refusal) => panic!("{refusal}"),
            _ => {}
        }
    }
}

pub(super) async fn refusal(mut answer: UnboundedReceiver<Generated>) -> Refusal {
    loop {
        match answer.recv().await.expect("an answer ends with its end") {
            Generated::Failed(refusal) => return refusal,
            Generated::Finished { .. } => panic!("answered"),
            _ => {}
        }
    }
}

/// Whether the engine's blocks hold the very bits of the prefill engine's.
pub(super) fn equal(world: &World, number: u64) -> bool {
    let pool = testing::open_pool(world.directory.path(), &engine::attach(), Access::Read);
    let blocks = world.engine().blocks(number);
    let here = Readable::new(&pool, blocks, TOKENS, TOKENS).unwrap();
    let there = world.prefill().blocks();
    (0..2).all(|layer| {
        [Kind::K, Kind::V].into_iter().all(|kind| {
            let [here, there] = [&here, there].map(|kv| kv.source(layer, kind, 0..TOKENS).unwrap());
            (0..5).all(|block| {
                let tokens = (TOKENS as usize - block * 64).min(64);
                testing::values(&here, kind, block, tokens)
                    == testing::values(&there, kind, block, tokens)
            })
        })
    })
}
