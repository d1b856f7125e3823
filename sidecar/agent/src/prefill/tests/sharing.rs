//! Many transfers on one slow link, with little memory for what is split ahead of it.

use std::collections::{BTreeMap, BTreeSet};

use lynx_ports::HeldAddress;
use lynx_proto::engine::v1::{FinishReason, from_agent};
use lynx_proto::peer::v1::TransferRequest;
use lynx_transport::ReceiverEvent;
use lynx_transport::emulate::{LinkOptions, Relay};
use lynx_units::{BitRate, Bytes, Priority, TransferId};

use super::peer::{self, Peer};
use super::{Agent, LOOPBACK};
use crate::coding::Coding;
use crate::counters::Pool;
use crate::method::Method;
use crate::testing::{FakeEngine, soon};

const TRANSFERS: u64 = 50;
const TOKENS: u32 = 256;
/// A small part of what the transfers take.
const ROOM: Bytes = Bytes::from_mib(1);

fn shape() -> lynx_kernels::KvShape {
    lynx_kernels::KvShape {
        layers: 2,
        kv_heads: 2,
        head_dim: 64,
    }
}

/// Computes whatever it is asked for at once.
async fn compute(mut engine: FakeEngine) {
    while let Ok(said) = engine.hear().await {
        if let from_agent::Kind::Prefill(prefill) = said {
            engine.start(prefill.request, &[0, 1, 2, 3], 0);
            engine.publish(prefill.request, 0..TOKENS);
            engine.done(prefill.request, 1);
            engine.finish(prefill.request, FinishReason::Length);
        }
    }
}

fn ask(peer: &Peer, transfer: u64) -> TransferRequest {
    TransferRequest {
        transfer,
        timeline: false,
        ..peer.ask(Method::LynxExact, TOKENS, 0)
    }
}

/// What has come so far.
#[derive(Default)]
struct Arrived {
    bytes: [u64; 2],
    anchors: BTreeSet<TransferId>,
    complete: BTreeSet<TransferId>,
    /// Residual bytes that were here when the last anchor was.
    ahead: u64,
}

#[tokio::test]
async fn fifty_transfers_on_a_slow_link_have_their_anchors_first_and_none_starves() {
    let held = HeldAddress::take().unwrap();
    let data = held.address();
    let options = LinkOptions::new(BitRate::from_megabits_per_second(40));
    let relay = Relay::start(LOOPBACK, data, options).unwrap();
    let agent = Agent::start_with(|options| {
        options.data = data;
        options.announced_data = Some(relay.address().to_string());
        options.send_buffer = ROOM;
    })
    .await;
    let engine = agent.ready().await;
    let computing = tokio::spawn(compute(engine));
    let mut peer = Peer::meet(&agent).await;
    let descriptor = ask(&peer, 1).coding.unwrap();
    let mut streams = BTreeMap::new();
    for transfer in 1..=TRANSFERS {
        let request = ask(&peer, transfer);
        streams.insert(transfer, peer.transfer(&request).await.unwrap());
    }
    let coding = Coding::new(shape(), &descriptor).unwrap();
    let plan = std::sync::Arc::new(coding.transfer().clone());
    let mut arrived = Arrived::default();
    let ready = agent.counters.memory.of(Pool::Split);
    while arrived.complete.len() < 50 {
        assert!(
            ready.taken() <= ROOM.get(),
            "{} bytes lie ready",
            ready.taken()
        );
        match soon(peer.received.next()).await.unwrap() {
            ReceiverEvent::Offered { transfer, .. } => {
                peer.link.accept(transfer, plan.clone()).unwrap();
            }
            ReceiverEvent::SegmentComplete { segment, bytes, .. } => {
                let priority = plan.priority(segment).unwrap();
                arrived.bytes[priority.index()] += bytes.len() as u64;
            }
            ReceiverEvent::LevelComplete { transfer, level: 0 } => {
                arrived.anchors.insert(transfer);
                arrived.ahead = arrived.bytes[Priority::Residual.index()];
            }
            ReceiverEvent::LevelComplete { .. } => {}
            ReceiverEvent::Complete(transfer) => {
                arrived.complete.insert(transfer);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(arrived.anchors.len(), 50);
    let [anchors, residuals] = arrived.bytes;
    assert!(anchors + residuals > 6 * ROOM.get(), "{:?}", arrived.bytes);
    assert!(
        arrived.ahead < residuals / 2,
        "{} of {residuals} residual bytes came before the last anchor",
        arrived.ahead
    );
    for mut events in streams.into_values() {
        let end = peer::end(&mut events).await;
        assert_eq!(end.code(), tonic::Code::Ok, "{end}");
    }
    agent.is_idle().await;
    assert_eq!(ready.taken(), 0, "nothing lies ready any more");
    computing.abort();
}

#[tokio::test]
async fn a_transfer_that_ends_while_its_units_wait_for_room_lets_go_of_them() {
    let agent = Agent::start_with(|options| options.send_buffer = Bytes::from_kib(64)).await;
    let mut engine = agent.ready().await;
    let mut peer = Peer::meet(&agent).await;
    let request = ask(&peer, 1);
    let events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3], 0);
    engine.publish(prefill.request, 0..TOKENS);
    let ready = agent.counters.memory.of(Pool::Split);
    // Nobody accepts the transfer, so nothing is sent, and the second layer finds no room.
    soon(async {
        while ready.taken() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(events);
    let request = prefill.request;
    let heard = engine.hear().await.unwrap();
    let abort = lynx_proto::engine::v1::Abort { request };
    assert_eq!(heard, from_agent::Kind::Abort(abort));
    engine.finish(request, FinishReason::Aborted);
    let heard = engine.hear().await.unwrap();
    let release = lynx_proto::engine::v1::Release { request };
    assert_eq!(heard, from_agent::Kind::Release(release));
    agent.is_idle().await;
    soon(async {
        while ready.taken() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_has_as_many_transfers_as_it_may_is_sent_elsewhere() {
    let agent = Agent::start_with(|options| options.most_transfers = [1, 8]).await;
    let mut engine = agent.ready().await;
    let mut peer = Peer::meet(&agent).await;
    let first = ask(&peer, 1);
    let _events = peer.transfer(&first).await.unwrap();
    engine.hear_prefill().await;
    let second = ask(&peer, 2);
    let refused = peer.transfer(&second).await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("ask another"), "{refused}");
}
