//! The prompt by HTTP, where the engine has a server of its own: what has it begin.
//!
//! The KV and all that is to be known of it come over the engine's stream; the answer to this question says only that there
//! will be none of it. So the question is asked beside `Prefill`, with its number, and is dropped with it.

use std::time::Duration;

use axum::body::to_bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use lynx_proto::engine::v1::{Prefill, TraceContext, from_agent};
use serde::Serialize;
use tokio::task::AbortHandle;
use tonic::Status;

use super::Signal;
use super::node::Node;
use crate::run::chain;
use crate::upstream::Upstream;

/// What is asked.
const PATH: &str = "/v1/completions";
/// How long an engine that has answered by HTTP may take to say anything over its stream: the two overtake each other.
const QUIET: Duration = Duration::from_secs(10);
/// How much of an error is read, and how much of it is told on.
const LONGEST: usize = 16 << 10;
const TOLD: usize = 200;

/// A completion of one token, which nobody reads.
#[derive(Debug, Serialize)]
struct Question<'a> {
    model: &'a str,
    prompt: &'a [u32],
    max_tokens: u32,
    temperature: u32,
    ignore_eos: bool,
    stream: bool,
    kv_transfer_params: Parameters,
}

/// What the engine's connector finds the `Prefill` by.
#[derive(Debug, Serialize)]
struct Parameters {
    lynx: Number,
}

#[derive(Debug, Serialize)]
struct Number {
    prefill: String,
}

impl Node {
    /// Has the engine compute a prompt; what drops the question by HTTP, where there is one.
    pub(super) fn prefill(&self, prefill: Prefill) -> Option<AbortHandle> {
        let posted = self.upstream.as_ref().map(|upstream| {
            let request = prefill.request;
            let question = Question {
                model: &self.engine.info().model,
                prompt: &prefill.tokens,
                max_tokens: 1,
                temperature: 0,
                ignore_eos: true,
                stream: false,
                kv_transfer_params: Parameters {
                    lynx: Number {
                        prefill: request.to_string(),
                    },
                },
            };
            // Of numbers and texts: it can be written.
            let text = serde_json::to_vec(&question).unwrap_or_default();
            let (upstream, head) = (upstream.clone(), head(prefill.trace.as_ref()));
            let signals = self.signals.clone();
            tokio::spawn(async move {
                let why = ask(&upstream, head, text).await;
                drop(signals.send(Signal::Unanswered(request, why)));
            })
        });
        self.say(from_agent::Kind::Prefill(prefill));
        posted.map(|task| task.abort_handle())
    }

    /// The question by HTTP has come to nothing, or to nothing that the engine's stream tells of.
    pub(super) fn unanswered(&mut self, request: u64, why: Status) {
        let serving = self.serving.get(&request);
        if serving.is_some_and(|serving| serving.is_awaited()) {
            self.fail(request, why);
        }
    }
}

fn head(trace: Option<&TraceContext>) -> HeaderMap {
    let mut head = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    head.insert(header::CONTENT_TYPE, json);
    let TraceContext {
        traceparent,
        tracestate,
    } = trace.cloned().unwrap_or_default();
    for (name, value) in [("traceparent", traceparent), ("tracestate", tracestate)] {
        if let Ok(value) = HeaderValue::from_str(&value)
            && !value.is_empty()
        {
            head.insert(HeaderName::from_static(name), value);
        }
    }
    head
}

/// Asks, and says why nothing may be expected any more.
async fn ask(upstream: &Upstream, mut head: HeaderMap, text: Vec<u8>) -> Status {
    match upstream.authorization() {
        Ok(Some(key)) => drop(head.insert(header::AUTHORIZATION, key)),
        Ok(None) => {}
        Err(error) => return Status::unavailable(chain(&error)),
    }
    let answer = match upstream.ask((Method::POST, PATH), head, text.into()).await {
        Ok(answer) => answer,
        Err(error) => return Status::unavailable(error.to_string()),
    };
    let status = answer.status();
    let body = to_bytes(answer.into_body(), LONGEST).await;
    if status.is_success() {
        tokio::time::sleep(QUIET).await;
        let why = "the prefill engine has answered, and its stream told nothing of it: is Lynx's connector configured there?";
        return Status::aborted(why);
    }
    let body = body.unwrap_or_default();
    let said: String = String::from_utf8_lossy(&body).chars().take(TOLD).collect();
    let why = format!("the prefill engine refused: {status}: {said}");
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        Status::unavailable(why)
    } else {
        Status::invalid_argument(why)
    }
}
