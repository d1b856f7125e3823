//! Requests that are not answered.

use super::*;

#[tokio::test]
async fn what_is_wrong_is_told_with_the_fields_name() {
    let mut server = server();
    for (field, value) in [
        ("model", json!(null)),
        ("model", json!(7)),
        ("messages", json!([])),
        ("messages", json!("Hello")),
        ("messages[0]", json!(["Hello"])),
        (
            "messages[0].role",
            json!([{"role": "tool", "content": "x"}]),
        ),
        ("messages[0].role", json!([{"content": "x"}])),
        ("messages[0].content", json!([{"role": "user"}])),
        (
            "messages[0].content",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
        ),
        (
            "messages[0].tool_calls",
            json!([{"role": "assistant", "content": "", "tool_calls": []}]),
        ),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_completion_tokens", json!(1.5)),
        ("temperature", json!(2.1)),
        ("temperature", json!("hot")),
        ("top_p", json!(0)),
        ("top_k", json!(-2)),
        ("seed", json!(0.5)),
        ("stop", json!("")),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stop", json!([1])),
        ("stream", json!("yes")),
        ("stream_options", json!({"include_usage": true})),
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
        ("tools", json!([{"type": "function"}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_object"})),
        ("logit_bias", json!({"1": 2})),
        ("frequency_penalty", json!(0.5)),
        ("lynx", json!(true)),
        ("lynx.colour", json!({"colour": 1})),
        ("lynx.method", json!({"method": "fp8"})),
        ("lynx.anchor_bits", json!({"anchor_bits": 9})),
        ("lynx.anchor_bits", json!({"anchor_bits": 3.3})),
        ("lynx.provisional", json!({"provisional": true})),
        ("lynx.timeline", json!({"timeline": true})),
    ] {
        let name = field.split(['.', '[']).next().unwrap();
        let body = hello_with(&json!({name: value})).to_string();
        let (status, error) = server.refused(CHAT, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let error = &error["error"];
        assert_eq!(error["param"], field, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert!(error["message"].as_str().unwrap().contains(name), "{error}");
    }
}

#[tokio::test]
async fn prompts_that_are_none_are_refused() {
    let mut server = server();
    for prompt in [
        json!(null),
        json!(""),
        json!([]),
        json!([[]]),
        json!(["a", "b"]),
        json!([-1]),
        json!([1.5]),
        json!([5_000_000_000_u64]),
        json!([[1], [2]]),
        json!({"text": "a"}),
    ] {
        let body = json!({"model": "tiny", "prompt": prompt}).to_string();
        let (status, error) = server.refused(COMPLETIONS, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{prompt}");
        assert_eq!(error["error"]["param"], "prompt", "{prompt}");
    }
    for (field, value) in [
        ("echo", json!(true)),
        ("suffix", json!("x")),
        ("best_of", json!(3)),
    ] {
        let body = json!({"model": "tiny", "prompt": "a", field: value}).to_string();
        let (status, error) = server.refused(COMPLETIONS, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(error["error"]["code"], "unsupported_parameter", "{field}");
    }
}

#[tokio::test]
async fn bodies_that_are_no_requests_are_refused() {
    let mut server = server();
    for body in ["", "hello", "[]", "{\"model\": ", "\u{feff}{}"] {
        let (status, _) = server.refused(CHAT, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    let large = " ".repeat(65 * 1024);
    let (status, error) = server.refused(CHAT, &large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("65536")
    );
}

#[tokio::test]
async fn another_model_path_or_method_is_told_so() {
    let mut server = server();
    let body = hello_with(&json!({"model": "huge"})).to_string();
    let (status, error) = server.refused(CHAT, &body).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(error["error"]["code"], "model_not_found");
    let (status, _) = server.json(request("GET", "/v1/images", "")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let response = server.call(request("GET", CHAT, "")).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "POST");
    assert!(text(response).await.contains("invalid_request_error"));
}

#[tokio::test]
async fn a_full_agent_says_when_to_try_again() {
    let mut server = server();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let mut router = server.router.clone();
        calls.push(tokio::spawn(async move {
            router
                .call(request("POST", CHAT, &hello().to_string()))
                .await
        }));
    }
    let first = taken(&mut server.inbox).await;
    let second = taken(&mut server.inbox).await;
    let response = server
        .call(request("POST", CHAT, &hello().to_string()))
        .await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    for (_, events) in [first, second] {
        for generated in hi() {
            events.send(generated).unwrap();
        }
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let (_, response) = server.exchange(CHAT, &hello(), hi()).await;
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "the places are free again"
    );
}

#[tokio::test]
async fn without_an_engine_or_on_the_way_out_there_is_no_answer() {
    let mut server = server();
    server.drain.begin(Duration::from_secs(60));
    let (status, error) = server.refused(CHAT, &hello().to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("draining")
    );
    let mut server = self::server();
    server.attachment.send_replace(Attachment {
        engine: None,
        error: Some("it has 12 layers".to_owned()),
        ..Attachment::default()
    });
    let (status, error) = server.refused(CHAT, &hello().to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("12 layers")
    );
}

#[test]
fn any_request_is_handed_in_or_refused_with_a_reason() {
    let model = crate::requests::ModelInfo {
        name: "tiny".to_owned(),
        context_tokens: 100,
    };
    bolero::check!()
        .with_type::<(String, i64, bool)>()
        .for_each(|(text, number, flag)| {
            for value in [
                json!(text),
                json!(number),
                json!(flag),
                json!([text, number]),
                json!({"type": text}),
            ] {
                for name in [
                    "stop",
                    "n",
                    "temperature",
                    "seed",
                    "tools",
                    "lynx",
                    "stream_options",
                    "max_tokens",
                ] {
                    let body = hello_with(&json!({name: value}));
                    let object = body.as_object().unwrap();
                    let parsed = super::super::parse::parse(object, &model, 1, |_| {
                        Ok((crate::requests::Input::Text(text.clone()), None))
                    });
                    if let Err(error) = parsed {
                        assert!(!error.message().is_empty());
                    }
                }
            }
        });
}
