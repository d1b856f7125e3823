//! Transfers that end before they are complete.

use lynx_proto::engine::v1::{Abort, FinishReason, Refused, Release, from_agent, from_engine};
use lynx_protocol::Code as Cause;
use lynx_transport::ReceiverEvent;
use lynx_units::TransferId;
use tonic::Code;

use super::peer::{Peer, end, next};
use super::{Agent, prefill_engine};
use crate::method::Method;
use crate::testing::{FakeEngine, make_pool, soon};

/// The engine is told to stop, says that it has, and gets its blocks back.
async fn is_stopped(engine: &mut FakeEngine, request: u64) {
    let heard = engine.hear().await.unwrap();
    assert_eq!(heard, from_agent::Kind::Abort(Abort { request }));
    engine.finish(request, FinishReason::Aborted);
    let heard = engine.hear().await.unwrap();
    assert_eq!(heard, from_agent::Kind::Release(Release { request }));
}

/// The receiver hears how the transfer ended.
async fn ends_on_the_link(peer: &mut Peer) -> (bool, Cause) {
    loop {
        match soon(peer.received.next()).await.unwrap() {
            ReceiverEvent::Cancelled(_, reason) => return (true, reason.code()),
            ReceiverEvent::Failed(_, reason) => return (false, reason.code()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_caller_that_drops_its_stream_cancels() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::LynxExact, 300, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3, 4], 0);
    engine.publish(prefill.request, 0..256);
    next(&mut events).await.unwrap();
    drop(events);
    is_stopped(&mut engine, prefill.request).await;
    assert!(ends_on_the_link(&mut peer).await.0);
    agent.is_idle().await;
    assert_eq!(agent.counters.transfers_cancelled.get(), 1);
}

#[tokio::test]
async fn a_receiver_that_cancels_on_the_link_ends_the_work_too() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::Bf16, 300, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3, 4], 0);
    next(&mut events).await.unwrap();
    peer.link.cancel(TransferId(1), "not wanted").unwrap();
    assert_eq!(end(&mut events).await.code(), Code::Cancelled);
    is_stopped(&mut engine, prefill.request).await;
    agent.is_idle().await;
}

#[tokio::test]
async fn a_deadline_that_passes_ends_a_transfer_everywhere() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let mut request = peer.ask(Method::LynxExact, 300, 0);
    // Long enough that it is not over before the transfer has begun, whatever the machine does meanwhile.
    request.time_left_ns = 2_000_000_000;
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3, 4], 0);
    let code = end(&mut events).await.code();
    // The link has the same deadline, and may be the first to notice.
    assert!(matches!(code, Code::DeadlineExceeded | Code::Aborted));
    is_stopped(&mut engine, prefill.request).await;
    assert_eq!(ends_on_the_link(&mut peer).await, (false, Cause::Deadline));
    agent.is_idle().await;
}

#[tokio::test]
async fn an_engine_that_vanishes_fails_its_transfers_with_a_reason() {
    let (mut agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::LynxExact, 300, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3, 4], 0);
    engine.publish(prefill.request, 0..256);
    next(&mut events).await.unwrap();
    drop(engine);
    let status = end(&mut events).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("the prefill engine is gone"),
        "{status}"
    );
    ends_on_the_link(&mut peer).await;
    agent.is_idle().await;
    soon(agent.status.wait_for(|status| !status.ready))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_engine_that_refuses_or_fails_is_quoted() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    for (transfer, retryable, code) in [
        (1, true, Code::Unavailable),
        (2, false, Code::InvalidArgument),
    ] {
        let mut request = peer.ask(Method::LynxExact, 300, 0);
        request.transfer = transfer;
        let mut events = peer.transfer(&request).await.unwrap();
        let prefill = engine.hear_prefill().await;
        engine.say(from_engine::Kind::Refused(Refused {
            request: prefill.request,
            reason: "no blocks are free".to_owned(),
            retryable,
            too_long: false,
        }));
        let status = end(&mut events).await;
        assert_eq!(status.code(), code);
        assert!(status.message().contains("no blocks are free"), "{status}");
    }
    let mut request = peer.ask(Method::LynxExact, 300, 0);
    request.transfer = 3;
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.finish(prefill.request, FinishReason::Failed);
    assert_eq!(end(&mut events).await.code(), Code::Aborted);
    agent.is_idle().await;
    assert_eq!(agent.counters.transfers_failed.get(), 3);
}

#[tokio::test]
async fn an_engine_that_cuts_its_pool_short_loses_its_transfers_and_not_the_agent() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::LynxExact, 300, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[0, 1, 2, 3, 4], 0);
    let file = agent.directory.path().join("pool");
    std::fs::File::create(file).unwrap();
    engine.publish(prefill.request, 0..256);
    let ended = end(&mut events).await;
    let told = "pages of the pool's file are missing";
    assert!(ended.message().contains(told), "{ended}");
    let let_go = loop {
        match engine.hear().await {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert!(let_go.message().contains(told), "{let_go}");
    agent.is_idle().await;
    make_pool(agent.directory.path(), &prefill_engine(), 1);
    let socket = agent.directory.path().join("engine.sock");
    let again = soon(async {
        // The place is free a moment after the engine was told.
        loop {
            match FakeEngine::attach(&socket, prefill_engine()).await {
                Ok(engine) => break engine,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    drop(again.await);
}
