//! What Kubernetes and Prometheus ask.

use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use serde_json::json;

use super::App;
use super::error::ApiError;
use crate::config::values::duration;

/// What a drain needs to know.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    pub(super) drain: crate::drain::Drain,
    /// How long a drain lasts, whoever asks for it.
    pub(super) patience: Duration,
}

/// The process answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Everything is listened on. Not whether an engine is there: a native sidecar has to be started before its engine is.
pub(super) async fn started() -> &'static str {
    "ok\n"
}

/// There is an engine, and new work is taken.
pub(super) async fn ready(State(app): State<App>) -> Response {
    match app.unready() {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

pub(super) async fn metrics(State(app): State<App>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = app.inputs.metrics.encode();
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

/// Begins to drain, and answers when nothing is in flight or the deadline has passed. The engine's preStop hook calls it:
/// Kubernetes' httpGet is a GET. What a caller says is how long it waits itself: that ends no answer of a client.
pub(super) async fn drain(
    State(Drain { drain, patience }): State<Drain>,
    method: Method,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    if method != Method::GET && method != Method::POST {
        return Err(ApiError::method());
    }
    let wait = wait(query.as_deref(), patience)?;
    tracing::info!(?wait, "draining: asked to over HTTP");
    drain.begin(patience.max(wait));
    let ended = tokio::time::timeout(wait, drain.finished()).await;
    let left = ended.unwrap_or_else(|_| drain.left());
    Ok(Json(json!({"drained": left == 0, "in_flight": left})).into_response())
}

fn wait(query: Option<&str>, default: Duration) -> Result<Duration, ApiError> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(default);
    };
    query
        .strip_prefix("deadline=")
        .and_then(duration)
        .ok_or_else(|| {
            ApiError::param(
                "deadline",
                "the query must be deadline=30s: numbers with ms, s, m or h",
            )
        })
}
