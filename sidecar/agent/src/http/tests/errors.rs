//! Requests that are not answered.

use super::super::answer::Form;
use super::super::parse::parse;
use http::HeaderValue;

use super::*;
use crate::requests::ModelInfo;

fn model() -> ModelInfo {
    ModelInfo {
        name: "tiny".to_owned(),
        context_tokens: 100,
        fingerprint: None,
    }
}

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
        ("top_p", json!(-0.1)),
        ("top_p", json!(1.1)),
        ("top_k", json!(-2)),
        ("seed", json!(0.5)),
        ("stop", json!("")),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stop", json!([1])),
        ("stream", json!("yes")),
        ("stream_options", json!({"include_usage": true})),
        ("n", json!(0)),
        ("n", json!(129)),
        ("n", json!(3)),
        ("n", json!(1.5)),
        ("logprobs", json!(5)),
        ("top_logprobs", json!(3)),
        ("top_logprobs", json!(21)),
        ("tools", json!([{"type": "function"}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_object"})),
        ("logit_bias", json!([[1, 2]])),
        ("logit_bias.a", json!({"a": 2})),
        ("logit_bias.1", json!({"1": 101})),
        ("frequency_penalty", json!(2.5)),
        ("presence_penalty", json!("much")),
        (
            "messages[0].name",
            json!([{"role": "user", "content": "x", "name": "Ann"}]),
        ),
        ("temprature", json!(0)),
        ("reasoning_effort", json!("high")),
        ("stream_options", json!({})),
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
        json!([-1]),
        json!([1.5]),
        json!([5_000_000_000_u64]),
        json!([["a"]]),
        json!([[1], "a", []]),
        json!(["a", 1]),
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
        assert_eq!(error["error"]["param"], field);
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
    let (_, error) = server.refused(CHAT, "{\n  \"model\": x}").await;
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("line 2 column 12"), "{message}");
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

/// They were read as if they had not been said.
#[tokio::test]
async fn a_body_in_another_coding_is_refused() {
    let mut server = server();
    for (name, value, wanted) in [
        ("content-encoding", "gzip", "no compression"),
        ("content-encoding", "br, identity", "no compression"),
        ("content-type", "text/plain", "application/json in UTF-8"),
        (
            "content-type",
            "application/json; charset=utf-16",
            "application/json in UTF-8",
        ),
        ("content-type", "\u{ff}", "application/json in UTF-8"),
    ] {
        let mut asked = request("POST", CHAT, "{}");
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        asked.headers_mut().insert(name, value);
        let (status, error) = server.json(asked).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{name}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(wanted), "{message}");
    }
    for (name, value) in [
        ("content-encoding", "identity"),
        ("content-type", "Application/JSON; charset=\"UTF-8\""),
    ] {
        let mut asked = request("POST", CHAT, "{}");
        asked.headers_mut().insert(name, value.parse().unwrap());
        let (status, error) = server.json(asked).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
        assert_eq!(error["error"]["param"], "model");
    }
}

/// A megabyte of a name came back in the message, and once more in the field's name.
#[tokio::test]
async fn what_is_said_back_is_cut_to_what_a_person_reads() {
    let mut server = server();
    let long = "ü".repeat(10_000);
    for (body, path) in [
        (hello_with(&json!({"model": long})), CHAT),
        (hello_with(&json!({long.as_str(): 1})), CHAT),
        (hello_with(&json!({"lynx": {long.as_str(): 1}})), CHAT),
        (hello_with(&json!({"logit_bias": {long.as_str(): 1}})), CHAT),
    ] {
        let (_, error) = server.refused(path, &body.to_string()).await;
        let said = error.to_string();
        assert!(said.len() < 1000 && said.contains("ü…"), "{said}");
    }
}

#[tokio::test]
async fn a_models_name_that_is_no_text_is_an_error_in_the_same_shape() {
    let mut server = server();
    let (status, error) = server.json(request("GET", "/v1/models/%ff", "")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["type"], "invalid_request_error");
}

#[test]
fn a_whole_number_is_one_however_it_is_written() {
    let model = model();
    for (text, count) in [
        ("3", 3),
        ("3.0", 3),
        ("3e1", 30),
        ("1e20", 100),
        ("1e300", 100),
        ("18446744073709551615", 100),
    ] {
        let body = format!("{{\"model\": \"tiny\", \"prompt\": \"a\", \"max_tokens\": {text}}}");
        let object = super::super::fields::json_object(body.as_bytes()).unwrap();
        let parsed = parse(Form::Completion, &object, &model, 0, 8).unwrap();
        assert_eq!(parsed.generates[0].max_tokens, count, "{text}");
    }
}

#[test]
fn any_whole_number_is_a_seed_however_it_is_written() {
    let seed = |text: &str| {
        let body = format!(r#"{{"model": "tiny", "prompt": "a", "seed": {text}}}"#);
        let object = super::super::fields::json_object(body.as_bytes()).unwrap();
        let parsed = parse(Form::Completion, &object, &model(), 7, 1);
        parsed.map(|parsed| parsed.generates[0].sampling.seed)
    };
    for (text, number) in [
        ("1", 1),
        ("1.0", 1),
        ("1e3", 1000),
        ("-1", u64::MAX),
        ("-1.0", u64::MAX),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(seed(text), Ok(number), "{text}");
    }
    let beyond = "18446744073709551616";
    assert_eq!(seed(beyond), seed(beyond));
    assert!(seed(beyond).is_ok() && seed(beyond) != seed("1e30"));
    assert!(seed("0.5").is_err());
}

#[tokio::test]
async fn another_model_path_or_method_is_told_so() {
    let mut server = server();
    let body = hello_with(&json!({"model": "huge"})).to_string();
    let (status, error) = server.refused(CHAT, &body).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(error["error"]["code"], "model_not_found");
    let (status, error) = server.refused("/v1/responses", "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("/v1/chat/completions"), "{message}");
    let mut prefill = with(|settings| settings.role = Role::Prefill);
    for path in [CHAT, "/v1/completions"] {
        let (status, error) = prefill.refused(path, "{}").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("ask a decode agent"), "{message}");
    }
    let response = server.call(request("GET", CHAT, "")).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "POST");
    assert!(text(response).await.contains("invalid_request_error"));
    let response = server.call(request("OPTIONS", CHAT, "")).await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(response.headers()["allow"], "POST");
    let response = server.call(request("HEAD", "/v1/models", "")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "");
    let (status, error) = server.json(request("DELETE", "/v1/models/tiny", "")).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(error["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn what_is_not_said_to_be_json_is_refused_by_its_type() {
    let mut server = server();
    for (kind, expected) in [
        ("text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (
            "application/x-www-form-urlencoded",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        ("application/json; charset=utf-8", StatusCode::BAD_REQUEST),
        ("Application/JSON", StatusCode::BAD_REQUEST),
    ] {
        let mut request = request("POST", CHAT, "{}");
        let value = kind.parse().unwrap();
        request.headers_mut().insert("content-type", value);
        let (status, error) = server.json(request).await;
        assert_eq!(status, expected, "{kind}: {error}");
    }
    let mut request = request("POST", CHAT, "{}");
    request.headers_mut().remove("content-type");
    let (status, _) = server.json(request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "read as JSON");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_as_openai_does() {
    let mut server = server();
    let script = vec![Generated::Failed(crate::requests::Refusal::TooLong(
        "the prompt has 200 tokens".to_owned(),
    ))];
    let (_, response) = server.exchange(CHAT, &hello(), script).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let error: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    assert_eq!(error["error"]["param"], "messages");
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
    let model = model();
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
                    for form in [Form::Chat, Form::Completion] {
                        if let Err(error) = parse(form, object, &model, 1, 64) {
                            assert!(!error.message().is_empty());
                        }
                    }
                }
            }
        });
}

/// The same for bytes.
#[test]
fn bytes_are_a_request_or_refused_with_a_reason() {
    let model = model();
    bolero::check!()
        .with_type::<(bool, Vec<u8>)>()
        .for_each(|(is_chat, bytes)| {
            if let Err(message) = read_request(*is_chat, bytes, &model, 64) {
                assert!(!message.is_empty());
            }
        });
    let body = br#"{"model": "tiny", "prompt": ["a", "b"], "n": 2, "seed": 9}"#;
    let generates = read_request(false, body, &model, 64).unwrap();
    let seeds: Vec<_> = generates.iter().map(|one| one.sampling.seed).collect();
    assert_eq!(seeds, [9, 10, 9, 10], "each prompt as if it were alone");
}
