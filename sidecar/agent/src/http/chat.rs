//! `/v1/chat/completions`.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use http::HeaderMap;
use lynx_proto::engine::v1::{Chat, ChatMessage};
use serde_json::{Map, Value};

use super::answer::Form;
use super::error::ApiError;
use super::fields::Fields;
use super::parse::Prompts;
use super::{App, serve};
use crate::requests::Input;

pub(super) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    serve::serve(app, &headers, body, Form::Chat).await
}

/// The conversation. The newer name of the limit wins.
pub(super) fn prompts(fields: Fields<'_>) -> Result<Prompts, ApiError> {
    let max_tokens = match fields.count("max_completion_tokens")? {
        Some(count) => Some(count),
        None => fields.count("max_tokens")?,
    };
    let messages = fields.get("messages");
    let messages =
        messages.ok_or_else(|| ApiError::missing("messages", "messages must be given"))?;
    let messages = messages.as_array();
    let messages = messages
        .filter(|messages| !messages.is_empty())
        .ok_or_else(|| ApiError::param("messages", "messages must be a list, and not empty"))?;
    let messages = messages
        .iter()
        .enumerate()
        .map(|(index, value)| message(index, value))
        .collect::<Result<_, _>>()?;
    Ok(Prompts {
        inputs: vec![Input::Chat(Chat { messages })],
        max_tokens,
    })
}

fn message(index: usize, value: &Value) -> Result<ChatMessage, ApiError> {
    let prefix = format!("messages[{index}].");
    let Some(object) = value.as_object() else {
        let name = format!("messages[{index}]");
        return Err(ApiError::param(&name, format!("{name} must be an object")));
    };
    let fields = Fields::new(object, &prefix);
    let role = fields.text("role")?;
    let role = match role {
        // The same under its newer name, which models' templates don't know.
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant")) => role,
        _ => {
            let name = fields.name("role");
            let message = format!("{name} must be system, developer, user or assistant");
            return Err(if matches!(role, Some("tool" | "function")) {
                ApiError::unsupported(&name, format!("{message}: tools are not supported"))
            } else {
                ApiError::param(&name, message)
            });
        }
    };
    let other = |name: &&str| !matches!(*name, "role" | "content") && fields.get(name).is_some();
    if let Some(name) = fields.names().find(other) {
        let name = fields.name(name);
        let message = format!("{name} is not supported: a message has role and content here");
        return Err(ApiError::unsupported(&name, message));
    }
    Ok(ChatMessage {
        role: role.to_owned(),
        content: content(fields)?,
    })
}

/// A text, or parts of type text, which are joined.
fn content(fields: Fields<'_>) -> Result<String, ApiError> {
    let name = fields.name("content");
    match fields.get("content") {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| {
                part.as_object().and_then(text_of).ok_or_else(|| {
                    let message = format!("{name}: only parts of type text are supported");
                    ApiError::unsupported(&name, message)
                })
            })
            .collect(),
        _ => Err(ApiError::param(
            &name,
            format!("{name} must be a string or a list of text parts"),
        )),
    }
}

fn text_of(part: &Map<String, Value>) -> Option<&str> {
    let is_text = part.get("type")?.as_str()? == "text";
    part.get("text").filter(|_| is_text)?.as_str()
}
