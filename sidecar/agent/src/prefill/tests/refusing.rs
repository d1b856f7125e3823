//! What is not begun.

use std::time::Duration;

use lynx_proto::engine::v1::Attach;
use lynx_proto::peer::v1::{CheckRequest, TransferRequest};
use lynx_transport::{Clock, DialError, Dialler, LinkConfig};
use tonic::Code;

use super::peer::{Peer, client, identity};
use super::{Agent, prefill_engine};
use crate::method::Method;
use crate::testing::soon;

/// A change, and what is said about it.
type Case = (fn(&mut TransferRequest), Code, &'static str);

#[tokio::test]
async fn a_peer_with_another_model_is_refused_by_name_on_both_ways() {
    let (agent, _engine) = Agent::with_engine().await;
    let good = Peer::meet(&agent).await;
    let other = identity(&Attach {
        model_fingerprint: vec![9; 32],
        ..prefill_engine()
    });
    let caller = Some(other.to_proto());
    let mut client = client(&agent).await;
    let checked = client.check(CheckRequest {
        caller: caller.clone(),
    });
    let checked = soon(checked).await.unwrap_err();
    let mut request = good.ask(Method::LynxExact, 100, 0);
    request.caller = caller;
    let asked = soon(client.transfer(request)).await.unwrap_err();
    for status in [checked, asked] {
        assert_eq!(status.code(), Code::FailedPrecondition);
        let message = status.message();
        assert!(message.starts_with("model is tiny (0707"), "{message}");
        assert!(message.contains("on prefill-0 and tiny (0909"), "{message}");
    }
    let good = client.check(CheckRequest {
        caller: Some(good.identity.to_proto()),
    });
    let address = soon(good).await.unwrap().into_inner().data_address;
    let config = LinkConfig::new(Clock::start(), other.to_peer_info()).unwrap();
    let mut dialler = Dialler::new(address.parse().unwrap(), config);
    let dialled = dialler.connect(Duration::from_secs(20)).await;
    assert!(matches!(
        dialled,
        Err(DialError::Refused { .. } | DialError::Incompatible { .. })
    ));
}

#[tokio::test]
async fn questions_that_make_no_sense_are_refused_with_a_sentence() {
    let (agent, _engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    // The link is known from here on.
    drop(peer.transfer(&peer.ask(Method::Bf16, 10, 0)).await.unwrap());
    let cases: [Case; 10] = [
        (|r| r.caller = None, Code::InvalidArgument, "who it is"),
        (|r| r.coding = None, Code::InvalidArgument, "no coding"),
        (
            |r| r.tokens.truncate(99),
            Code::InvalidArgument,
            "of 100 tokens, and 99 came",
        ),
        (
            |r| {
                r.tokens = vec![0; 5000];
                r.coding.as_mut().unwrap().prompt_tokens = 5000;
            },
            Code::InvalidArgument,
            "takes 4096",
        ),
        (
            |r| r.coding.as_mut().unwrap().from_token = 128,
            Code::InvalidArgument,
            "",
        ),
        (
            |r| r.coding.as_mut().unwrap().method = 99,
            Code::InvalidArgument,
            "method",
        ),
        (
            |r| r.coding.as_mut().unwrap().profile = "own".to_owned(),
            Code::FailedPrecondition,
            "the profile is own in the coding and uniform",
        ),
        (
            |r| r.link = "decode-9".to_owned(),
            Code::Unavailable,
            "decode-0 is not connected to prefill-0",
        ),
        (
            |r| r.tokens[17] ^= 1,
            Code::DataLoss,
            "the question's checksum is wrong",
        ),
        (
            |r| r.time_left_ns = 0,
            Code::DeadlineExceeded,
            "no time left",
        ),
    ];
    for (change, code, expected) in cases {
        let mut request = peer.ask(Method::LynxExact, 100, 0);
        request.transfer = 7;
        change(&mut request);
        let status = soon(peer.client.transfer(request)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(expected), "{status}");
    }
}

#[tokio::test]
async fn nothing_is_begun_without_an_engine_or_while_draining() {
    let agent = Agent::start().await;
    let caller = Some(identity(&prefill_engine()).to_proto());
    let mut client = client(&agent).await;
    let checked = client.check(CheckRequest {
        caller: caller.clone(),
    });
    assert_eq!(soon(checked).await.unwrap_err().code(), Code::Unavailable);
    let asked = client.transfer(TransferRequest {
        caller,
        ..TransferRequest::default()
    });
    assert_eq!(soon(asked).await.unwrap_err().code(), Code::Unavailable);

    let (agent, _engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    drop(peer.transfer(&peer.ask(Method::Bf16, 10, 0)).await.unwrap());
    agent.drain.begin(Duration::from_secs(60));
    let mut request = peer.ask(Method::Bf16, 100, 0);
    request.transfer = 2;
    let status = soon(peer.client.transfer(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("draining"), "{status}");
    let checked = peer.client.check(CheckRequest {
        caller: Some(peer.identity.to_proto()),
    });
    assert!(soon(checked).await.unwrap().into_inner().draining);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused_with_the_bound_and_the_next_one_is_heard() {
    let (agent, _engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let mut request = peer.ask(Method::Bf16, 10, 0);
    // One long text costs no time to write, which many tokens do: the link's heartbeats wait for it on this one thread.
    let coding = request.coding.as_mut().unwrap();
    coding.profile = "p".repeat(9 << 20);
    let refused = soon(peer.client.transfer(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert!(
        refused.message().contains("the limit is: 8388608"),
        "{refused}"
    );
    let fine = peer.ask(Method::Bf16, 10, 0);
    peer.transfer(&fine).await.unwrap();
}
