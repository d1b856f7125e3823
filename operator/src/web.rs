//! Health and metrics over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::Metrics;

/// What the endpoints tell.
#[derive(Clone, Debug)]
pub struct Health {
    /// Whether the watches have seen everything once. A replica that doesn't lead is ready too.
    pub ready: Arc<AtomicBool>,
    /// The figures.
    pub metrics: Arc<Metrics>,
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ready\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the watches have not seen everything yet\n",
        )
    }
}

async fn metrics(State(health): State<Health>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], health.metrics.text())
}
