//! What goes well.

use lynx_kernels::Kind;
use lynx_proto::engine::v1::{FinishReason, Release, Role, from_agent};
use lynx_proto::peer::v1::transfer_event::Kind as Told;

use lynx_transport::ReceiverEvent;
use lynx_transport::emulate::Fabric;

use super::peer::{Peer, next};
use super::{Agent, BLOCKS, prefill_engine};
use crate::carriage::Carriage;
use crate::coding::Coding;
use crate::method::Method;
use crate::pool::{Access, Readable, Writable};
use crate::security::Security;
use crate::testing::{attach, make_pool, open_pool, soon, values};

const TOKENS: u32 = 700;
const TABLE: [u32; 11] = [5, 3, 9, 0, 1, 12, 2, 15, 7, 8, 10];

/// A transfer of a prompt of which `cached` tokens were there, from `from_token` on; the decode engine then has the very
/// bits from there to the prompt's end, and its other rows are as they were.
async fn arrives_as_it_was(method: Method, cached: u32, from_token: u32) {
    arrives_by(&Carriage::default(), "TCP", method, [cached, from_token]).await;
}

/// The same over a link that is carried so.
async fn arrives_by(carriage: &Carriage, name: &str, method: Method, from: [u32; 2]) {
    let [cached, from_token] = from;
    let agent = Agent::start_with(|options| options.carriage = carriage.clone()).await;
    let mut engine = agent.ready().await;
    let mut peer = Peer::meet_by(&agent, &Security::default(), carriage).await;
    let mut status = agent.status.clone();
    let linked = soon(status.wait_for(|status| !status.links.is_empty())).await;
    assert_eq!(linked.unwrap().links[0].transport, name);
    let request = peer.ask(method, TOKENS, from_token);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    assert_eq!(prefill.tokens, request.tokens);
    assert_eq!(prefill.from_token, from_token);
    assert_eq!(*agent.drain.in_flight().borrow(), 1);
    engine.start(prefill.request, &TABLE, cached);
    for start in (cached..TOKENS).step_by(256) {
        engine.publish(prefill.request, start..TOKENS.min(start + 256));
    }
    engine.done(prefill.request, 42);
    engine.finish(prefill.request, FinishReason::Length);

    let directory = tempfile::tempdir().unwrap();
    let decode = attach(Role::Decode, BLOCKS);
    make_pool(directory.path(), &decode, 2);
    let pool = open_pool(directory.path(), &decode, Access::Write);
    let table: Vec<u32> = (2..13).collect();
    let mut blocks = Writable::new(&pool, table.clone(), TOKENS, from_token).unwrap();
    peer.receive(&request.coding.unwrap(), &mut blocks).await;
    drop(blocks);

    let mut told = Vec::new();
    while let Some(kind) = next(&mut events).await.unwrap() {
        told.push(kind);
    }
    assert!(matches!(told.first(), Some(Told::Started(s)) if s.cached_tokens == cached));
    let layers = told.iter().filter(|kind| matches!(kind, Told::Layer(_)));
    assert_eq!(layers.count(), 2 * (TOKENS - cached).div_ceil(256) as usize);
    let first = told
        .iter()
        .any(|kind| matches!(kind, Told::First(f) if f.token == 42));
    assert!(first);
    assert!(matches!(told.last(), Some(Told::Sent(_))));
    let request = prefill.request;
    let released = engine.hear().await.unwrap();
    assert_eq!(released, from_agent::Kind::Release(Release { request }));
    agent.is_idle().await;
    assert_eq!(agent.counters.transfers_complete.get(), 1);
    assert!(agent.counters.anchor_bytes.get() > 0);

    let here = open_pool(agent.directory.path(), &prefill_engine(), Access::Read);
    let here = Readable::new(&here, TABLE.to_vec(), TOKENS, TOKENS).unwrap();
    let there = Readable::new(&pool, table, TOKENS, TOKENS).unwrap();
    for (layer, kind) in [(0, Kind::K), (0, Kind::V), (1, Kind::K), (1, Kind::V)] {
        let here = here.source(layer, kind, 0..TOKENS).unwrap();
        let there = there.source(layer, kind, 0..TOKENS).unwrap();
        for block in 0..TABLE.len() {
            let tokens = (TOKENS as usize - block * 64).min(64);
            let [here, there] = [&here, &there].map(|source| values(source, kind, block, tokens));
            let is_sent = block >= from_token as usize / 64;
            assert_eq!(
                here == there,
                is_sent,
                "layer {layer} {kind:?} block {block}"
            );
        }
    }
    // What follows the prompt in its last block is the decode engine's.
    let untouched = tempfile::tempdir().unwrap();
    make_pool(untouched.path(), &decode, 2);
    let untouched = open_pool(untouched.path(), &decode, Access::Read);
    let rest = |pool| {
        let blocks = Readable::new(pool, vec![12], 64, 64).unwrap();
        let source = blocks.source(1, Kind::V, 0..64).unwrap();
        values(&source, Kind::V, 0, 64)[60 * 64..64 * 64].to_vec()
    };
    assert_eq!(rest(&untouched), rest(&pool));
}

#[tokio::test]
async fn lynx_exact_arrives_bit_for_bit() {
    arrives_as_it_was(Method::LynxExact, 0, 0).await;
}

#[tokio::test]
async fn bf16_arrives_bit_for_bit() {
    arrives_as_it_was(Method::Bf16, 0, 0).await;
}

#[tokio::test]
async fn by_rdma_either_arrives_bit_for_bit() {
    let carriage = Carriage::by(Fabric::new(1).adapter(), true);
    for method in [Method::LynxExact, Method::Bf16] {
        arrives_by(&carriage, "RDMA", method, [0, 0]).await;
    }
}

#[tokio::test]
async fn what_was_cached_is_sent_too() {
    arrives_as_it_was(Method::LynxExact, TOKENS - 1, 0).await;
    arrives_as_it_was(Method::LynxExact, 320, 0).await;
}

#[tokio::test]
async fn what_the_decode_engine_has_is_not_sent() {
    arrives_as_it_was(Method::LynxExact, 0, 128).await;
    arrives_as_it_was(Method::Bf16, 512, 640).await;
}

#[tokio::test]
async fn a_link_that_is_faster_than_the_first_token_does_not_lose_it() {
    const ALL: u32 = 256;
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::Bf16, ALL, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3], 0);
    engine.publish(prefill.request, 0..ALL);
    let directory = tempfile::tempdir().unwrap();
    let decode = attach(Role::Decode, BLOCKS);
    make_pool(directory.path(), &decode, 2);
    let pool = open_pool(directory.path(), &decode, Access::Write);
    let mut blocks = Writable::new(&pool, vec![0, 1, 2, 3], ALL, 0).unwrap();
    peer.receive(&request.coding.unwrap(), &mut blocks).await;
    soon(async {
        while agent.counters.transfers_complete.get() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    engine.done(prefill.request, 42);
    engine.finish(prefill.request, FinishReason::Length);
    let mut told = Vec::new();
    while let Some(kind) = next(&mut events).await.unwrap() {
        told.push(kind);
    }
    assert!(matches!(
        told[told.len() - 2..],
        [Told::First(_), Told::Sent(_)]
    ));
    agent.is_idle().await;
}

#[tokio::test]
async fn a_question_that_is_ahead_of_its_link_waits_for_it() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut kept = Vec::new();
    for _ in 0..8 {
        // Whoever dialled has the link, and its ticket, a moment before the agent does.
        let mut peer = Peer::meet(&agent).await;
        let request = peer.ask(Method::Bf16, 64, 0);
        let asked = soon(peer.client.transfer(request)).await;
        engine.hear_prefill().await;
        kept.push((peer, asked.unwrap()));
    }
}

#[tokio::test]
async fn two_transfers_go_on_at_a_time() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let first = peer.ask(Method::Bf16, 64, 0);
    let second = lynx_proto::peer::v1::TransferRequest {
        transfer: 2,
        ..first.clone()
    };
    let mut events = Vec::new();
    let mut requests = Vec::new();
    for (block, request) in [(0, &first), (1, &second)] {
        events.push(peer.transfer(request).await.unwrap());
        let prefill = engine.hear_prefill().await;
        engine.start(prefill.request, &[block], 0);
        requests.push(prefill.request);
    }
    // A number that the link has is refused, and does the other no harm.
    let again = peer.transfer(&second).await.err().unwrap();
    assert_eq!(again.code(), tonic::Code::AlreadyExists, "{again}");
    for _ in 0..2 {
        match soon(peer.received.next()).await {
            Some(ReceiverEvent::Offered { transfer, .. }) => {
                let plan = Coding::new(shape(), first.coding.as_ref().unwrap()).unwrap();
                let plan = std::sync::Arc::new(plan.transfer().clone());
                peer.link.accept(transfer, plan).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    for request in requests.into_iter().rev() {
        engine.publish(request, 0..64);
        engine.done(request, 1);
        engine.finish(request, FinishReason::Length);
    }
    for mut events in events {
        let end = super::peer::end(&mut events).await;
        assert_eq!(end.code(), tonic::Code::Ok, "{end}");
    }
    agent.is_idle().await;
    assert_eq!(agent.counters.transfers_complete.get(), 2);
    // One that the link has had fails at once.
    let mut again = peer.transfer(&second).await.unwrap();
    let end = super::peer::end(&mut again).await;
    assert_eq!(end.code(), tonic::Code::Aborted, "{end}");
}

fn shape() -> lynx_kernels::KvShape {
    lynx_kernels::KvShape {
        layers: 2,
        kv_heads: 2,
        head_dim: 64,
    }
}
