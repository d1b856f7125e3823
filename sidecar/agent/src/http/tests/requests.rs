//! Requests that are answered in one piece, and what of them reaches the data path.

use lynx_proto::engine::v1::{ChatMessage, Tokens};
use lynx_units::Width;

use super::*;
use crate::method::Method;
use crate::requests::Input;

#[tokio::test]
async fn a_chat_is_answered() {
    let mut server = server();
    let (generate, response) = server.exchange(CHAT, &hello(), hi()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let Input::Chat(chat) = &*generate.input else {
        panic!("{generate:?}");
    };
    assert_eq!(
        chat.messages,
        [ChatMessage {
            role: "user".to_owned(),
            content: "Hello".to_owned()
        }]
    );
    assert_eq!(generate.max_tokens, 100, "the whole context");
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "tiny");
    assert_eq!(answer["system_fingerprint"], "fp_abababababab");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(
        answer["choices"],
        json!([{
            "index": 0,
            "message": {"role": "assistant", "content": "Hi there", "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }])
    );
    assert_eq!(
        answer["usage"],
        json!({
            "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 2},
        })
    );
}

#[tokio::test]
async fn a_completion_is_answered_with_the_text_that_was_held_back() {
    let mut server = server();
    let body = json!({"model": "tiny", "prompt": "Once", "max_tokens": 1, "temperature": 0});
    let script = vec![
        accepted(1),
        draft(0, " up"),
        Generated::Retracted { from_index: 0 },
        token(0, " u"),
        Generated::Finished {
            reason: Finish::Length,
            rest: "pon".to_owned(),
            completion_tokens: 1,
            anchor: None,
            memory_bytes: [None, None],
            logprobs: Vec::new(),
        },
    ];
    let (generate, response) = server.exchange(COMPLETIONS, &body, script).await;
    assert_eq!(*generate.input, Input::Text("Once".to_owned()));
    assert!(generate.sampling.temperature.abs() < f32::EPSILON);
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["text"], " upon");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn every_form_of_a_prompt_is_understood() {
    let mut server = server();
    let tokens = || Input::Tokens(Tokens { ids: vec![1, 2] });
    let cases = [
        (json!("Once"), Input::Text("Once".to_owned())),
        (json!(["Once"]), Input::Text("Once".to_owned())),
        (json!([1, 2]), tokens()),
        (json!([[1, 2]]), tokens()),
    ];
    for (prompt, input) in cases {
        let body = json!({"model": "tiny", "prompt": prompt});
        let (generate, _) = server.exchange(COMPLETIONS, &body, hi()).await;
        assert_eq!(*generate.input, input, "{prompt}");
        assert_eq!(generate.max_tokens, 16, "OpenAI's default");
    }
}

#[tokio::test]
async fn every_parameter_reaches_the_data_path() {
    let mut server = server();
    let body = json!({
        "model": "tiny",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]},
        ],
        "max_tokens": 3, "max_completion_tokens": 5, "temperature": 0.5, "top_p": 0.25, "top_k": 40, "seed": -1,
        "stop": ["END", "."], "n": 1, "user": "somebody", "metadata": {"x": "1"}, "logprobs": true, "top_logprobs": 3, "tools": [],
        "logit_bias": {"17": -100, "4": 1.5}, "presence_penalty": 0.5, "frequency_penalty": -2,
        "lynx": {"method": "lynx-int8", "anchor_bits": 3.5, "ignore_eos": true},
    });
    let (generate, _) = server.exchange(CHAT, &body, hi()).await;
    let Input::Chat(chat) = &*generate.input else {
        panic!("{generate:?}");
    };
    assert_eq!(chat.messages[0].role, "system");
    assert_eq!(chat.messages[1].content, "Hello");
    assert_eq!(generate.max_tokens, 5);
    let sampling = generate.sampling.clone();
    assert_eq!(sampling.logit_bias, [(17, -100.0), (4, 1.5)].into());
    let penalties = [sampling.presence_penalty, sampling.frequency_penalty];
    assert_eq!(
        penalties.map(f32::to_bits),
        [0.5_f32, -2.0].map(f32::to_bits)
    );
    assert_eq!(sampling.top_logprobs, Some(3));
    assert_eq!((sampling.top_k, sampling.seed), (40, u64::MAX));
    assert!((sampling.temperature - 0.5).abs() + (sampling.top_p - 0.25).abs() < f32::EPSILON);
    assert_eq!(generate.stop, ["END", "."]);
    assert_eq!(generate.method, Some(Method::LynxInt8));
    assert_eq!(generate.anchor, Width::from_eighths(28));
    assert!(generate.ignore_eos && !generate.timeline);
}

#[tokio::test]
async fn a_request_without_a_seed_gets_another_each_time() {
    let mut server = server();
    let (first, _) = server.exchange(CHAT, &hello(), hi()).await;
    let (second, _) = server.exchange(CHAT, &hello(), hi()).await;
    assert_ne!(first.sampling.seed, second.sampling.seed);
}

#[tokio::test]
async fn the_callers_trace_goes_on() {
    let mut server = server();
    let (generate, response) = server.exchange(CHAT, &hello(), hi()).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    assert!(generate.trace.traceparent.contains(trace), "{generate:?}");
    let told = response.headers()["traceparent"].to_str().unwrap();
    assert!(told.contains(trace), "{told}");
}

#[tokio::test]
async fn an_answer_that_ends_in_failure_is_an_error() {
    let mut server = server();
    let script = vec![
        accepted(7),
        token(0, "Hi"),
        Generated::Failed(crate::requests::Refusal::Failed("it broke".to_owned())),
    ];
    let (_, response) = server.exchange(CHAT, &hello(), script).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(response).await.contains("it broke"));
    let (_, response) = server.exchange(CHAT, &hello(), Vec::new()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let measured = server.metrics.encode();
    assert!(
        measured.contains(r#"lynx_requests_total{outcome="failed"} 2"#),
        "{measured}"
    );
}

#[tokio::test]
async fn the_model_is_listed() {
    let mut server = server();
    let (status, list) = server.json(request("GET", "/v1/models", "")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(list["data"][0]["id"], "tiny");
    assert_eq!(list["data"][0]["max_model_len"], 100);
    let (status, model) = server.json(request("GET", "/v1/models/tiny", "")).await;
    assert_eq!(
        (status, &model["object"]),
        (StatusCode::OK, &json!("model"))
    );
    let (status, _) = server.json(request("GET", "/v1/models/huge", "")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    server.attachment.send_replace(Attachment::default());
    let (_, list) = server.json(request("GET", "/v1/models", "")).await;
    assert_eq!(list["data"], json!([]));
}
