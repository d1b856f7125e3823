//! The role with an engine that does what a test says, real sockets and a real link.

mod ending;
mod flooding;
mod peer;
mod posting;
mod probing;
mod refusing;
mod sharing;
mod transferring;
mod trusting;
mod watching;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lynx_kernels::Profile;
use lynx_proto::engine::v1 as engine;
use lynx_proto::engine::v1::{FinishReason, Release, from_agent};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::*;
use crate::config;
use crate::requests::Requests;
use crate::security::Security;
use crate::session::{self, Socket};
use crate::testing::{FakeEngine, attach, make_pool, soon};
use crate::upstream::Upstream;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const BLOCKS: u32 = 16;

/// A prefill agent, listening.
struct Agent {
    directory: tempfile::TempDir,
    control: SocketAddr,
    drain: Drain,
    counters: Arc<Counters>,
    status: watch::Receiver<Status>,
    requests: Requests,
    tasks: JoinSet<()>,
}

impl Agent {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        Self::start_before(None, change).await
    }

    /// With an engine that has an HTTP server of its own, where there is one.
    async fn start_before(upstream: Option<Upstream>, change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        make_pool(directory.path(), &prefill_engine(), 1);
        let (drain, counters) = (Drain::new(), Arc::new(Counters::default()));
        let (socket, engines) = Socket::open(session::Options {
            socket: directory.path().join("engine.sock"),
            shared_directory: directory.path().to_owned(),
            role: config::Role::Prefill,
            has_http: upstream.is_some(),
            gpu: crate::pool::GpuOptions::default(),
        })
        .unwrap();
        let mut options = Options {
            name: "prefill-0".to_owned(),
            generation: "gen-1".to_owned(),
            control: LOOPBACK,
            data: LOOPBACK,
            announced_data: None,
            send_buffer: lynx_units::Bytes::from_mib(64),
            message_memory: Bytes::from_mib(64),
            most_peers: 64,
            most_transfers: [64, 256],
            security: Security::default(),
            carriage: Carriage::default(),
            choose_profile: Arc::new(|model, shape| {
                if model == "unknown" {
                    return Err("no such model".to_owned());
                }
                Profile::uniform(shape).map_err(|error| error.to_string())
            }),
            drain: drain.clone(),
            counters: Arc::clone(&counters),
            prefix_blocks: 100,
            upstream,
        };
        change(&mut options);
        let prefill = Prefill::bind(options).await.unwrap();
        let control = prefill.control_address();
        let (requests, commands) = Requests::new();
        let (told, status) = watch::channel(Status::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { socket.run().await.unwrap() });
        tasks.spawn(async move { prefill.run(engines, commands, told).await.unwrap() });
        Self {
            directory,
            control,
            drain,
            counters,
            status,
            requests,
            tasks,
        }
    }

    /// With an engine that the role works with.
    async fn with_engine() -> (Self, FakeEngine) {
        let agent = Self::start().await;
        let engine = agent.ready().await;
        (agent, engine)
    }

    /// An engine that the role works with.
    async fn ready(&self) -> FakeEngine {
        let engine = self.attach(prefill_engine()).await;
        let mut status = self.status.clone();
        soon(status.wait_for(|status| status.ready)).await.unwrap();
        engine
    }

    async fn attach(&self, attach: engine::Attach) -> FakeEngine {
        let socket = self.directory.path().join("engine.sock");
        FakeEngine::attach(&socket, attach).await.unwrap()
    }

    /// Waits until nothing is in flight.
    async fn is_idle(&self) {
        soon(self.drain.in_flight().wait_for(|count| *count == 0))
            .await
            .unwrap();
    }
}

fn prefill_engine() -> engine::Attach {
    attach(engine::Role::Prefill, BLOCKS)
}

#[tokio::test]
async fn a_prompt_is_warmed_and_forgotten() {
    let (mut agent, mut engine) = Agent::with_engine().await;
    let requests = agent.requests.clone();
    agent
        .tasks
        .spawn(async move { requests.warm(vec![1; 100]).await.unwrap() });
    let prefill = engine.hear_prefill().await;
    assert_eq!((prefill.tokens.len(), prefill.from_token), (100, 0));
    engine.start(prefill.request, &[3, 4], 0);
    engine.publish(prefill.request, 0..100);
    engine.done(prefill.request, 5);
    engine.finish(prefill.request, FinishReason::Length);
    let heard = engine.hear().await.unwrap();
    let request = prefill.request;
    assert_eq!(heard, from_agent::Kind::Release(Release { request }));
    let requests = agent.requests.clone();
    let (done, forgotten) = oneshot::channel();
    agent
        .tasks
        .spawn(async move { drop(done.send(requests.forget().await)) });
    let heard = engine.hear().await.unwrap();
    assert_eq!(heard, from_agent::Kind::Forget(engine::Forget {}));
    engine.say(engine::from_engine::Kind::Forgotten(engine::Forgotten {}));
    assert_eq!(soon(forgotten).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn what_needs_an_engine_is_refused_without_one() {
    let agent = Agent::start().await;
    assert!(matches!(
        soon(agent.requests.warm(vec![1])).await,
        Err(Refusal::Unavailable(_))
    ));
    assert!(matches!(
        soon(agent.requests.forget()).await,
        Err(Refusal::Unavailable(_))
    ));
}

#[tokio::test]
async fn an_engine_whose_model_has_no_profile_is_told_so() {
    let mut agent = Agent::start().await;
    let mut engine = agent
        .attach(engine::Attach {
            model: "unknown".to_owned(),
            ..prefill_engine()
        })
        .await;
    let status = engine.hear().await.unwrap_err();
    assert!(status.message().contains("no such model"), "{status}");
    let told = |status: &Status| status.attach_error.is_some();
    assert!(!soon(agent.status.wait_for(told)).await.unwrap().ready);
    // Another one is taken after it.
    let _engine = soon(async {
        loop {
            let socket = agent.directory.path().join("engine.sock");
            match FakeEngine::attach(&socket, prefill_engine()).await {
                Ok(engine) => break engine,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    soon(agent.status.wait_for(|status| status.ready))
        .await
        .unwrap();
}
