//! Answers as they come.

use super::*;
use crate::requests::Refusal;
use crate::timeline::{AnchorWidths, Event};

fn streamed(lynx: &Value) -> Value {
    hello_with(&json!({"stream": true, "lynx": lynx}))
}

fn parsed(stream: &str) -> Vec<Value> {
    data(stream)
        .into_iter()
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn a_stream_is_a_role_then_text_then_a_reason_then_usage_then_done() {
    let mut server = server();
    let body = hello_with(&json!({"stream": true, "stream_options": {"include_usage": true}}));
    let (_, response) = server.exchange(CHAT, &body, hi()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let stream = text(response).await;
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let chunks = parsed(&stream);
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"]).collect();
    let choice = |delta: Value, reason: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
    assert_eq!(
        deltas,
        [
            &choice(json!({"role": "assistant", "content": ""}), Value::Null),
            &choice(json!({"content": "Hi"}), Value::Null),
            &choice(json!({"content": " there"}), Value::Null),
            &choice(json!({}), json!("stop")),
            &json!([]),
        ]
    );
    assert_eq!(chunks[4]["usage"]["total_tokens"], 9);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk"
                && chunk["id"] == chunks[0]["id"])
    );
}

#[tokio::test]
async fn a_completion_is_streamed_too() {
    let mut server = server();
    let body = json!({"model": "tiny", "prompt": "Once", "stream": true});
    let (_, response) = server.exchange(COMPLETIONS, &body, hi()).await;
    let stream = text(response).await;
    let texts: String = parsed(&stream)
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, "Hi there");
    assert!(!stream.contains("usage"), "{stream}");
}

#[tokio::test]
async fn provisional_tokens_are_for_those_who_ask() {
    let script = || {
        vec![
            accepted(7),
            draft(0, "Ho"),
            Generated::Retracted { from_index: 0 },
            token(0, "Hi"),
            finished(Finish::Length, 1),
        ]
    };
    let mut server = server();
    let (_, response) = server.exchange(CHAT, &streamed(&json!({})), script()).await;
    let stream = text(response).await;
    assert!(
        !stream.contains("Ho") && !stream.contains("lynx"),
        "{stream}"
    );

    let body = streamed(&json!({"provisional": true}));
    let (_, response) = server.exchange(CHAT, &body, script()).await;
    let events: Vec<Value> = parsed(&text(response).await)
        .iter()
        .filter(|chunk| chunk["choices"] == json!([]))
        .map(|chunk| chunk["lynx"].clone())
        .collect();
    let names: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(names, ["token", "retracted", "token"]);
    assert_eq!(events[0]["text"], "Ho");
    assert_eq!(events[0]["provisional"], true);
    assert_eq!(events[2]["provisional"], false);
}

#[tokio::test]
async fn the_timeline_is_told_whole_but_for_what_may_be_retracted() {
    let happened = |event| Generated::Happened(event);
    let token_event = |provisional| Event::Token {
        index: 0,
        token: 1,
        text: "Hi".to_owned(),
        t: 0.5,
        provisional,
    };
    let script = || {
        vec![
            happened(Event::PrefillLayer {
                chunk: 0,
                layer: 0,
                start: 0.1,
                end: 0.2,
            }),
            accepted(7),
            happened(Event::AnchorReady { t: 0.3 }),
            happened(token_event(true)),
            draft(0, "Hi"),
            happened(token_event(false)),
            token(0, "Hi"),
            happened(Event::Finished { t: 0.6 }),
            Generated::Finished {
                reason: Finish::Stop,
                rest: String::new(),
                logprobs: Vec::new(),
                completion_tokens: 1,
                anchor: Some(AnchorWidths { k: 3.5, v: 4 }),
                memory_bytes: [Some(1), None],
            },
        ]
    };
    let mut server = server();
    for (provisional, names) in [
        (false, "prefill-layer anchor-ready token finished summary"),
        (
            true,
            "prefill-layer anchor-ready token token finished summary",
        ),
    ] {
        let body = streamed(&json!({"timeline": true, "provisional": provisional}));
        let (generate, response) = server.exchange(CHAT, &body, script()).await;
        assert!(generate.timeline);
        let stream = text(response).await;
        let events: Vec<Event> = parsed(&stream)
            .iter()
            .filter_map(|chunk| serde_json::from_value(chunk.get("lynx")?.clone()).unwrap())
            .collect();
        let told: Vec<String> = events
            .iter()
            .map(|event| json!(event)["event"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(told.join(" "), names);
    }
}

#[tokio::test]
async fn a_deployment_can_forbid_provisional_tokens_and_the_operators_word_wins() {
    let body = streamed(&json!({"provisional": true})).to_string();
    let mut server = with(|settings| settings.allow_provisional = false);
    let (status, error) = server.refused(CHAT, &body).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(error["error"]["param"], "lynx.provisional");
    server.policy.send_replace(Some(Policy {
        allow_provisional: true,
        ..Policy::default()
    }));
    let body = streamed(&json!({"provisional": true}));
    let (_, response) = server.exchange(CHAT, &body, hi()).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_failure_before_the_first_token_has_its_status_and_a_later_one_ends_the_stream() {
    let failed = || Generated::Failed(Refusal::Unavailable("the engine is gone".to_owned()));
    let mut server = server();
    let (_, response) = server
        .exchange(CHAT, &streamed(&json!({})), vec![failed()])
        .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let script = vec![accepted(7), token(0, "Hi"), failed()];
    let (_, response) = server.exchange(CHAT, &streamed(&json!({})), script).await;
    let stream = text(response).await;
    let last = parsed(&stream).pop().unwrap();
    assert_eq!(last["error"]["message"], "the engine is gone");
    assert!(!stream.contains("[DONE]"), "{stream}");
}

#[tokio::test]
async fn a_client_that_goes_away_aborts_its_request() {
    let mut server = server();
    // Before an answer has begun.
    let mut router = server.router.clone();
    let call = tokio::spawn(async move {
        router
            .call(request("POST", CHAT, &hello().to_string()))
            .await
    });
    let (_, events) = taken(&mut server.inbox).await;
    call.abort();
    events.closed().await;
    // While it is being given.
    let mut router = server.router.clone();
    let body = streamed(&json!({})).to_string();
    let call = tokio::spawn(async move { router.call(request("POST", CHAT, &body)).await });
    let (_, events) = taken(&mut server.inbox).await;
    events.send(accepted(7)).unwrap();
    events.send(token(0, "Hi")).unwrap();
    let response = call.await.unwrap().unwrap();
    assert!(!events.is_closed());
    drop(response);
    events.closed().await;
    let measured = server.metrics.encode();
    assert!(
        measured.contains(r#"lynx_requests_total{outcome="aborted"} 2"#),
        "{measured}"
    );
}
