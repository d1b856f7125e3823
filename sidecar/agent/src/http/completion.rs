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
use super::parse::Prompts;
use super::{App, serve};
use crate::requests::Input;

/// How many tokens are answered with where the client does not say, as OpenAI has it.
const DEFAULT_TOKENS: u32 = 16;

pub(super) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    serve::serve(app, &headers, body, Form::Completion).await
}

/// What is to be gone on from.
pub(super) fn prompts(fields: Fields<'_>) -> Result<Prompts, ApiError> {
    let max_tokens = fields.count("max_tokens")?.unwrap_or(DEFAULT_TOKENS);
    let prompt = fields.get("prompt");
    let prompt = prompt.ok_or_else(|| ApiError::missing("prompt", "prompt must be given"))?;
    let inputs = inputs(prompt).ok_or_else(|| {
        ApiError::param(
            "prompt",
            "prompt must be a string, a list of tokens, or a list of either, and not empty",
        )
    })?;
    Ok(Prompts {
        inputs,
        max_tokens: Some(max_tokens),
    })
}

/// A text, tokens, texts, or lists of tokens.
fn inputs(prompt: &Value) -> Option<Vec<Input>> {
    match prompt {
        Value::Array(items) if !items.first()?.is_number() => items.iter().map(one).collect(),
        prompt => Some(vec![one(prompt)?]),
    }
}

fn one(prompt: &Value) -> Option<Input> {
    match prompt {
        Value::String(text) if !text.is_empty() => Some(Input::Text(text.clone())),
        Value::Array(items) if !items.is_empty() => Some(Input::Tokens(Tokens {
            ids: tokens(items)?,
        })),
        _ => None,
    }
}
