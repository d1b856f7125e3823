//! Several choices of one prompt, and several prompts.

use std::sync::Arc;

use lynx_proto::engine::v1::{Logprob, TokenLogprobs};

use super::*;
use crate::requests::Input;

fn known(bytes: &str, logprob: f32) -> TokenLogprobs {
    let chosen = Logprob {
        token: 1,
        logprob,
        bytes: bytes.into(),
        name: String::new(),
    };
    TokenLogprobs {
        top: vec![chosen.clone()],
        chosen: Some(chosen),
    }
}

/// A token with its log probability.
fn told(index: u32, text: &str) -> Generated {
    Generated::Token {
        index,
        token: index,
        text: text.to_owned(),
        provisional: false,
        logprobs: vec![known(text, -0.5)],
    }
}

impl Server {
    /// Answers as many requests as there are scripts, the last one first.
    async fn choices(
        &mut self,
        path: &str,
        body: &Value,
        scripts: Vec<Vec<Generated>>,
    ) -> (Vec<Generate>, String) {
        let mut router = self.router.clone();
        let call = router.call(request("POST", path, &body.to_string()));
        let play = async {
            let (mut asked, mut clients) = (Vec::new(), Vec::new());
            for _ in &scripts {
                let (generate, events) = taken(&mut self.inbox).await;
                asked.push(generate);
                clients.push(events);
            }
            for (script, events) in scripts.into_iter().zip(&clients).rev() {
                for generated in script {
                    drop(events.send(generated));
                }
            }
            asked
        };
        let (response, asked) = tokio::join!(call, play);
        (asked, text(response.unwrap()).await)
    }
}

fn two() -> Vec<Vec<Generated>> {
    vec![
        vec![
            accepted(7),
            told(0, "Hi"),
            draft(1, " ho"),
            finished(Finish::Stop, 2),
        ],
        vec![
            accepted(7),
            draft(0, "Oh"),
            told(0, "Ho"),
            told(1, " ho"),
            finished(Finish::Length, 2),
        ],
    ]
}

#[tokio::test]
async fn choices_are_requests_of_one_group_with_seeds_of_their_own() {
    let mut server = server();
    let body = hello_with(&json!({"n": 2, "seed": 41, "logprobs": true, "top_logprobs": 1}));
    let (asked, answer) = server.choices(CHAT, &body, two()).await;
    let seeds: Vec<_> = asked.iter().map(|one| one.sampling.seed).collect();
    assert_eq!(seeds, [41, 42]);
    assert!(asked[0].group != 0 && asked[0].group == asked[1].group);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let texts: Vec<_> = (0..2)
        .map(|index| answer["choices"][index]["message"]["content"].clone())
        .collect();
    assert_eq!(texts, ["Hi", "Ho ho"]);
    assert_eq!(answer["choices"][1]["index"], 1);
    assert_eq!(answer["choices"][1]["finish_reason"], "length");
    let content = &answer["choices"][1]["logprobs"]["content"];
    assert_eq!(content[1]["token"], " ho");
    assert_eq!(content[1]["top_logprobs"][0]["logprob"], -0.5);
    assert_eq!(answer["usage"]["prompt_tokens"], 7, "one prompt");
    assert_eq!(answer["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn choices_are_streamed_with_their_index_and_no_draft_among_them() {
    let mut server = server();
    let body = hello_with(&json!({
        "n": 2, "stream": true, "logprobs": true, "stream_options": {"include_usage": true},
    }));
    let (_, stream) = server.choices(CHAT, &body, two()).await;
    assert!(
        !stream.contains("Oh") && !stream.contains("lynx"),
        "{stream}"
    );
    let chunks: Vec<Value> = data(&stream)
        .into_iter()
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    for (index, expected) in ["Hi", "Ho ho"].into_iter().enumerate() {
        let own = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let own: Vec<_> = own.filter(|choice| choice["index"] == index).collect();
        assert_eq!(own[0]["delta"]["role"], "assistant");
        let texts = own
            .iter()
            .filter_map(|choice| choice["delta"]["content"].as_str());
        assert_eq!(texts.collect::<String>(), expected);
        let tokens = own
            .iter()
            .filter_map(|choice| choice["logprobs"]["content"].as_array());
        let tokens = tokens
            .flatten()
            .map(|token| token["token"].as_str().unwrap());
        assert_eq!(tokens.collect::<String>(), expected);
        assert!(own.last().unwrap()["finish_reason"].is_string());
    }
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["usage"]["total_tokens"], 11);
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("usage") == Some(&Value::Null))
    );
}

#[tokio::test]
async fn every_prompt_of_a_list_is_answered_in_order() {
    let mut server = server();
    let body = json!({"model": "tiny", "prompt": ["One", "Two"], "seed": 5, "logprobs": 1});
    let (asked, answer) = server.choices(COMPLETIONS, &body, two()).await;
    let inputs: Vec<_> = asked.iter().map(|one| Input::clone(&one.input)).collect();
    assert_eq!(
        inputs,
        ["One", "Two"].map(|text| Input::Text(text.to_owned()))
    );
    assert!(
        asked
            .iter()
            .all(|one| one.sampling.seed == 5 && one.group == 0)
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["choices"][0]["text"], "Hi");
    assert_eq!(answer["choices"][1]["text"], "Ho ho");
    assert_eq!(
        answer["choices"][1]["logprobs"]["text_offset"],
        json!([0, 2])
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 14);
}

#[tokio::test]
async fn one_choice_that_fails_fails_all_and_aborts_the_others() {
    let mut server = server();
    let body = hello_with(&json!({"n": 2}));
    let mut router = server.router.clone();
    let call = router.call(request("POST", CHAT, &body.to_string()));
    let play = async {
        let (_, first) = taken(&mut server.inbox).await;
        let (_, second) = taken(&mut server.inbox).await;
        first.send(accepted(7)).unwrap();
        second
            .send(Generated::Failed(crate::requests::Refusal::Failed(
                "it broke".to_owned(),
            )))
            .unwrap();
        first.closed().await;
    };
    let (response, ()) = tokio::join!(call, play);
    assert_eq!(
        response.unwrap().status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
}

#[tokio::test]
async fn who_goes_away_takes_every_choice_along() {
    let mut server = server();
    let body = hello_with(&json!({"n": 2})).to_string();
    let mut router = server.router.clone();
    let call = tokio::spawn(async move { router.call(request("POST", CHAT, &body)).await });
    let (_, first) = taken(&mut server.inbox).await;
    let (_, second) = taken(&mut server.inbox).await;
    call.abort();
    tokio::join!(first.closed(), second.closed());
    let (_, response) = server.exchange(CHAT, &hello(), hi()).await;
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "the places are free again"
    );
}

#[tokio::test]
async fn more_choices_than_places_are_refused_at_once() {
    let mut server = server();
    let body = json!({"model": "tiny", "prompt": ["a", "b"], "n": 2}).to_string();
    let (status, error) = server.refused(COMPLETIONS, &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["param"], "n");
}

#[test]
fn a_body_that_asks_for_millions_of_choices_is_refused_before_any_is_made() {
    let model = crate::requests::ModelInfo {
        name: "tiny".to_owned(),
        context_tokens: 100,
        fingerprint: None,
    };
    let prompts = vec![[1]; 100_000];
    let body = json!({"model": "tiny", "prompt": prompts, "n": 128, "max_tokens": 1}).to_string();
    let error = read_request(false, body.as_bytes(), &model, 64).unwrap_err();
    assert!(error.contains("12800000 choices in all"), "{error}");
}

/// Sixty-four choices of a prompt of four megabytes took a quarter of a gigabyte.
#[tokio::test]
async fn choices_of_a_prompt_share_it() {
    let mut server = server();
    let body = json!({"model": "tiny", "prompt": "Once", "n": 2});
    let (asked, _) = server.choices(COMPLETIONS, &body, two()).await;
    assert!(Arc::ptr_eq(&asked[0].input, &asked[1].input));
}
