//! `/v1/completions`.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use http::HeaderMap;
use lynx_proto::engine::v1::Tokens;
use serde_json::Value;

use super::answer::Form;
use super::error::ApiError;
use super::fields::{Fields, tokens};
use super::{App, serve};
use crate::requests::Input;

/// How many tokens are answered with where the client does not say, as OpenAI has it.
const DEFAULT_TOKENS: u32 = 16;

pub(super) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    serve::serve(app, &headers, body, Form::Completion, input).await
}

fn input(fields: Fields<'_>) -> Result<(Input, Option<u32>), ApiError> {
    let max_tokens = fields.count("max_tokens")?.unwrap_or(DEFAULT_TOKENS);
    Ok((prompt(fields)?, Some(max_tokens)))
}

/// A text, tokens, or one of either in a list.
fn prompt(fields: Fields<'_>) -> Result<Input, ApiError> {
    let wrong = || {
        ApiError::param(
            "prompt",
            "prompt must be a string or a list of tokens, and not empty; several prompts are several requests here",
        )
    };
    let one = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(Input::Text(text.clone())),
        Value::Array(items) if !items.is_empty() => Some(Input::Tokens(Tokens {
            ids: tokens(items)?,
        })),
        _ => None,
    };
    let prompt = fields.get("prompt").ok_or_else(wrong)?;
    if let Value::Array(items) = prompt
        && let [only] = items.as_slice()
        && !only.is_number()
    {
        return one(only).ok_or_else(wrong);
    }
    one(prompt).ok_or_else(wrong)
}
