//! What measurements need: an engine that has forgotten, or that knows, a prompt. Only where the configuration says so.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use super::fields::{bytes, json_object, tokens};

/// Ends every request and forgets every prompt.
pub(super) async fn reset(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    app.inputs.requests.forget().await?;
    Ok(Json(json!({"forgotten": true})))
}

/// Computes `tokens` and keeps their KV.
pub(super) async fn warm(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let body = json_object(&bytes(body, app.settings.max_body.get())?)?;
    let prompt = body
        .get("tokens")
        .and_then(Value::as_array)
        .filter(|items| !items.is_empty())
        .and_then(|items| tokens(items))
        .ok_or_else(|| {
            ApiError::param("tokens", "tokens must be a list of tokens, and not empty")
        })?;
    let count = prompt.len();
    app.inputs.requests.warm(prompt).await?;
    Ok(Json(json!({"warmed_tokens": count})))
}
