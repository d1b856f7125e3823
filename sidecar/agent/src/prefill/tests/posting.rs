//! An engine with an HTTP server of its own is asked there too.

use std::path::PathBuf;

use axum::response::IntoResponse as _;
use http::StatusCode;
use lynx_ports::HeldAddress;
use lynx_proto::engine::v1::{Abort, Attach, FinishReason, Prefill, Release, from_agent};
use serde_json::{Value, json};
use tonic::Code;

use super::peer::{Peer, end};
use super::{Agent, prefill_engine};
use crate::method::Method;
use crate::testing::{FakeEngine, FakeServer, Question, soon};

struct World {
    agent: Agent,
    engine: FakeEngine,
    server: FakeServer,
}

impl World {
    async fn start() -> Self {
        Self::start_with_key(None).await
    }

    async fn start_with_key(file: Option<PathBuf>) -> Self {
        let server = FakeServer::start().await;
        let upstream = server.upstream.clone().with_key_file(file);
        let agent = Agent::start_before(Some(upstream), |_| {}).await;
        let engine = agent.attach(Attach {
            generates: false,
            ..prefill_engine()
        });
        let engine = engine.await;
        let mut status = agent.status.clone();
        soon(status.wait_for(|status| status.ready)).await.unwrap();
        Self {
            agent,
            engine,
            server,
        }
    }

    /// What the engine is asked, on both ways.
    async fn asked(&mut self) -> (Prefill, Question) {
        let prefill = self.engine.hear_prefill().await;
        (prefill, self.server.asked().await)
    }

    /// The engine is told to stop, and says that it has.
    async fn is_stopped(&mut self, request: u64) {
        let heard = self.engine.hear().await.unwrap();
        assert_eq!(heard, from_agent::Kind::Abort(Abort { request }));
        self.engine.finish(request, FinishReason::Aborted);
    }
}

#[tokio::test]
async fn the_prompt_is_posted_with_the_number_that_the_stream_has_told() {
    let mut world = World::start().await;
    let requests = world.agent.requests.clone();
    let warming = tokio::spawn(async move { requests.warm((0..100).collect()).await });
    let (prefill, (head, body, answer)) = world.asked().await;
    let at = (head.method.as_str(), head.uri.path());
    assert_eq!(at, ("POST", "/v1/completions"));
    let number = prefill.request.to_string();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let tokens: Vec<u32> = (0..100).collect();
    assert_eq!(
        body,
        json!({
            "model": "tiny", "prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": true,
            "stream": false, "kv_transfer_params": {"lynx": {"prefill": number}},
        })
    );
    // The two ways overtake each other, and what the answer says is nobody's affair.
    answer.send("{}".into_response()).unwrap();
    let (engine, request) = (&mut world.engine, prefill.request);
    engine.start(request, &[3, 4], 0);
    engine.publish(request, 0..100);
    engine.done(request, 5);
    engine.finish(request, FinishReason::Length);
    let heard = engine.hear().await.unwrap();
    assert_eq!(heard, from_agent::Kind::Release(Release { request }));
    assert_eq!(soon(warming).await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_server_that_wants_a_key_gets_the_one_that_the_file_holds_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let mut world = World::start_with_key(Some(file.clone())).await;
    for key in ["first", "second"] {
        std::fs::write(&file, format!("{key}\n")).unwrap();
        let mut peer = Peer::meet(&world.agent).await;
        let request = peer.ask(Method::Bf16, 100, 0);
        let events = peer.transfer(&request).await.unwrap();
        let (prefill, (head, _, mut answer)) = world.asked().await;
        assert_eq!(head.headers["authorization"], format!("Bearer {key}"));
        drop(events);
        soon(answer.closed()).await;
        world.is_stopped(prefill.request).await;
        world.agent.is_idle().await;
    }
    for (text, said) in [
        (None, "can't be read"),
        (Some("two\nlines"), "holds no API key"),
    ] {
        std::fs::remove_file(&file).ok();
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let mut peer = Peer::meet(&world.agent).await;
        let request = peer.ask(Method::Bf16, 100, 0);
        let mut events = peer.transfer(&request).await.unwrap();
        let prefill = world.engine.hear_prefill().await;
        let told = end(&mut events).await;
        assert_eq!(told.code(), Code::Unavailable);
        assert!(told.message().contains(said), "{told}");
        world.is_stopped(prefill.request).await;
        world.agent.is_idle().await;
    }
}

#[tokio::test]
async fn an_error_by_http_is_a_refusal() {
    let cases = [
        (StatusCode::BAD_REQUEST, Code::InvalidArgument),
        (StatusCode::UNAUTHORIZED, Code::InvalidArgument),
        (StatusCode::TOO_MANY_REQUESTS, Code::Unavailable),
        (StatusCode::INTERNAL_SERVER_ERROR, Code::Unavailable),
    ];
    let mut world = World::start().await;
    for (status, code) in cases {
        let mut peer = Peer::meet(&world.agent).await;
        let request = peer.ask(Method::Bf16, 100, 0);
        let mut events = peer.transfer(&request).await.unwrap();
        let (prefill, (_, _, answer)) = world.asked().await;
        answer.send((status, "it is so").into_response()).unwrap();
        let told = end(&mut events).await;
        assert_eq!(told.code(), code);
        assert!(told.message().contains("it is so"), "{told}");
        world.is_stopped(prefill.request).await;
        world.agent.is_idle().await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_refusal_that_sends_elsewhere() {
    let closed = HeldAddress::take().unwrap();
    let address = closed.address().to_string();
    let upstream = crate::upstream::Upstream::new(address.parse().unwrap());
    let agent = Agent::start_before(Some(upstream), |_| {}).await;
    let mut engine = agent
        .attach(Attach {
            generates: false,
            ..prefill_engine()
        })
        .await;
    let mut peer = Peer::meet(&agent).await;
    let request = peer.ask(Method::Bf16, 100, 0);
    let mut events = peer.transfer(&request).await.unwrap();
    let prefill = engine.hear_prefill().await;
    let told = end(&mut events).await;
    assert_eq!(told.code(), Code::Unavailable);
    assert!(told.message().contains(&address), "{told}");
    let heard = engine.hear().await.unwrap();
    let request = prefill.request;
    assert_eq!(heard, from_agent::Kind::Abort(Abort { request }));
}

#[tokio::test]
async fn a_transfer_that_nobody_wants_any_more_drops_the_question() {
    let mut world = World::start().await;
    let mut peer = Peer::meet(&world.agent).await;
    let request = peer.ask(Method::Bf16, 100, 0);
    let events = peer.transfer(&request).await.unwrap();
    let (prefill, (_, _, mut answer)) = world.asked().await;
    drop(events);
    soon(answer.closed()).await;
    world.is_stopped(prefill.request).await;
    world.agent.is_idle().await;
}

#[tokio::test]
async fn an_answer_without_a_word_on_the_stream_is_a_failure() {
    let mut world = World::start().await;
    let requests = world.agent.requests.clone();
    let warming = tokio::spawn(async move { requests.warm(vec![1; 100]).await });
    let (prefill, (_, _, answer)) = world.asked().await;
    answer.send("{}".into_response()).unwrap();
    tokio::time::pause();
    world.is_stopped(prefill.request).await;
    let refused = soon(warming).await.unwrap().unwrap_err();
    assert!(
        refused.to_string().contains("connector configured"),
        "{refused}"
    );
}
