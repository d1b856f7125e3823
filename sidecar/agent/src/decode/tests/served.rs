//! Requests that an engine with an HTTP server of its own begins.

use std::time::Duration;

use lynx_proto::engine::v1::{TraceContext, from_agent};
use tokio::time::Instant;

use super::engine::COMPUTED;
use super::prefill::Fault;
use super::world::{TOKENS, World, equal};
use crate::clients::Client;
use crate::counters::KvFailure;
use crate::method::Method;

/// The number of a request that an engine has chosen.
const OWN: u64 = 1 << 63;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);

fn client(method: Option<Method>) -> Client {
    Client {
        trace: TraceContext::default(),
        arrived: (Instant::now(), crate::clock::unix_ns()),
        method,
        anchor: None,
    }
}

fn is_full(said: &from_agent::Kind) -> bool {
    matches!(said, from_agent::Kind::FullReady(_))
}

fn is_failed(said: &from_agent::Kind) -> bool {
    matches!(said, from_agent::Kind::KvFailed(_))
}

async fn linked() -> World {
    let mut world = World::with_server(|_| {}).await;
    world.linked(true).await;
    world
}

impl World {
    fn own(&self) -> &super::engine::Engine {
        self.engine.as_ref().unwrap()
    }

    async fn hears(&self, is: fn(&from_agent::Kind) -> bool) -> from_agent::Kind {
        let said = tokio::time::timeout(PATIENCE, self.engine().wait(is));
        said.await.expect("the engine is told")
    }

    /// Waits until so many of the engine's tokens are counted: then it has ended its request.
    async fn counts(&self, tokens: u64) {
        let counted = async {
            while self.counters.verified_tokens.get() < tokens {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, counted)
            .await
            .expect("tokens are counted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_brought_its_kv_as_one_that_the_agent_hands_in() {
    let world = linked().await;
    let known = world.clients.enter(client(None));
    world.own().begin(OWN | 5, known.number());
    world.hears(is_full).await;
    assert!(equal(&world, OWN | 5));
    let asked = &world.prefill().asked()[0];
    assert_eq!(asked.tokens.len(), TOKENS as usize);
    let anchored = |said: &from_agent::Kind| matches!(said, from_agent::Kind::AnchorReady(_));
    world.hears(anchored).await;
    world.counts(1).await;
    let counters = &world.counters;
    assert_eq!(counters.transfers_complete.get(), 1);
    assert_eq!(counters.pace.first_token[1].count(), 1);
    assert_eq!(
        *world.drain.in_flight().borrow(),
        0,
        "it counts with its client"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_kv_travels_as_its_client_wants() {
    let world = linked().await;
    let known = world.clients.enter(client(Some(Method::Bf16)));
    world.own().begin(OWN | 1, known.number());
    world.hears(is_full).await;
    let coding = world.prefill().asked()[0].coding.clone().unwrap();
    let bf16 = lynx_proto::peer::v1::Method::from(Method::Bf16);
    assert_eq!(coding.method(), bf16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_prefill_agent_is_the_engine_is_told_at_once() {
    let world = World::with_server(|settings| settings.peers.clear()).await;
    world.own().begin(OWN, 0);
    let from_agent::Kind::KvFailed(failed) = world.hears(is_failed).await else {
        panic!("something else was said")
    };
    assert_eq!(failed.request, OWN);
    assert!(failed.reason.contains("no prefill agent"), "{failed:?}");
    world.counts(COMPUTED.len() as u64).await;
    assert_eq!(world.counters.kv_failures.of(KvFailure::NoPeer).get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_brought_for_a_client_who_has_gone() {
    let world = linked().await;
    let known = world.clients.enter(client(None));
    let number = known.number();
    drop(known);
    world.own().begin(OWN | 2, number);
    let from_agent::Kind::KvFailed(failed) = world.hears(is_failed).await else {
        panic!("something else was said")
    };
    assert!(failed.reason.contains("client is gone"), "{failed:?}");
    assert!(world.prefill().asked().is_empty());
    let failures = [KvFailure::NoPeer, KvFailure::Peer];
    assert!(
        failures
            .iter()
            .all(|kind| world.counters.kv_failures.of(*kind).get() == 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_did_not_come_through_the_agent_is_waited_for_by_a_drain() {
    let world = linked().await;
    world.prefill().set_fault(Fault::Stall);
    world.own().begin(OWN | 3, 0);
    let first = |said: &from_agent::Kind| matches!(said, from_agent::Kind::FirstToken(_));
    world.hears(first).await;
    assert_eq!(*world.drain.in_flight().borrow(), 1);
    world.drain.begin(Duration::from_secs(60));
    assert!(!world.drain.admits());
    world.own().end(OWN | 3);
    let ended = tokio::time::timeout(PATIENCE, world.drain.finished());
    assert_eq!(ended.await.unwrap(), 0);
    // The blocks were the agent's when the engine ended it: it is told when they are not any more.
    let abort = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Abort(_));
    world.hears(abort).await;
    assert_eq!(world.counters.transfers_cancelled.get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_the_engines_server_learns_that_the_agent_ends() {
    let world = linked().await;
    let clients = world.clients.clone();
    drop(world);
    tokio::time::timeout(PATIENCE, clients.ended())
        .await
        .unwrap();
}
