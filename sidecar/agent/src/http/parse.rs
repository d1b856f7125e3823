//! A request's JSON made into a [`Generate`].
//!
//! Fields that ask for what Lynx can't do are refused by name, since ignoring them would give an answer that looks like what
//! was asked for and is not. Fields that only tune, or that nobody knows, are ignored, as OpenAI-compatible servers do.

use lynx_proto::engine::v1::{Sampling, TraceContext};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::extension::{self, Extension};
use super::fields::Fields;
use crate::requests::{Generate, Input, ModelInfo};

/// How many stop texts there may be.
const MAX_STOPS: usize = 4;
/// The length of one.
const MAX_STOP_BYTES: usize = 1024;

/// What a request is, whatever it asks with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    pub(super) generate: Generate,
    /// Whether the answer is to come token by token.
    pub(super) stream: bool,
    /// Whether a stream ends with its usage.
    pub(super) include_usage: bool,
    /// Whether provisional tokens are wanted.
    pub(super) provisional: bool,
}

/// What a request says, before it is known whom to.
pub(super) fn parse(
    object: &Map<String, Value>,
    model: &ModelInfo,
    seed: u64,
    input: impl FnOnce(Fields<'_>) -> Result<(Input, Option<u32>), ApiError>,
) -> Result<Parsed, ApiError> {
    let fields = Fields::new(object, "");
    let Some(asked) = fields.text("model")? else {
        return Err(ApiError::param(
            "model",
            format!("name the model; there is {:?}", model.name),
        ));
    };
    if asked != model.name {
        return Err(ApiError::no_such_model(asked, &model.name));
    }
    refuse_unsupported(fields)?;
    let (input, max_tokens) = input(fields)?;
    let stream = fields.truth("stream")?;
    let extension = extension::read(fields)?;
    refuse_events_without_stream(extension, stream)?;
    Ok(Parsed {
        generate: Generate {
            input,
            max_tokens: max_tokens
                .unwrap_or(model.context_tokens)
                .min(model.context_tokens),
            sampling: sampling(fields, seed)?,
            stop: stop(fields)?,
            ignore_eos: extension.ignore_eos,
            method: extension.method,
            anchor: extension.anchor,
            timeline: extension.timeline,
            trace: TraceContext::default(),
        },
        stream,
        include_usage: include_usage(fields, stream)?,
        provisional: extension.provisional,
    })
}

fn refuse_events_without_stream(extension: Extension, stream: bool) -> Result<(), ApiError> {
    for (name, wanted) in [
        ("lynx.provisional", extension.provisional),
        ("lynx.timeline", extension.timeline),
    ] {
        if wanted && !stream {
            let message = format!("{name} is told as events of a stream: set stream to true");
            return Err(ApiError::param(name, message));
        }
    }
    Ok(())
}

/// Whether a field with this value changes nothing.
type IsHarmless<'a> = &'a dyn Fn(&Value) -> bool;

/// Fields that change what the answer is, with the values that change nothing.
fn refuse_unsupported(fields: Fields<'_>) -> Result<(), ApiError> {
    for name in ["n", "best_of"] {
        if fields.get(name).is_some_and(|n| n.as_u64() != Some(1)) {
            let message = format!("{name} must be 1: this server gives one answer a request");
            return Err(ApiError::unsupported(name, message));
        }
    }
    for name in ["frequency_penalty", "presence_penalty"] {
        if fields.number(name, -2.0, 2.0)?.unwrap_or_default() != 0.0 {
            return Err(not_supported(name));
        }
    }
    let is_text = |value: &Value| {
        value
            .get("type")
            .is_some_and(|kind| kind.as_str() == Some("text"))
    };
    let is_none = |value: &Value| matches!(value.as_str(), Some("none" | "auto"));
    let only_text = |value: &Value| *value == Value::from(vec!["text"]);
    let harmless: [(&str, IsHarmless<'_>); 14] = [
        ("logprobs", &|value| *value == Value::Bool(false)),
        ("top_logprobs", &|_| false),
        ("tools", &is_empty),
        ("tool_choice", &is_none),
        ("functions", &is_empty),
        ("function_call", &is_none),
        ("response_format", &is_text),
        ("echo", &|value| *value == Value::Bool(false)),
        ("suffix", &is_empty),
        ("logit_bias", &is_empty),
        ("modalities", &only_text),
        ("audio", &|_| false),
        ("guided_json", &|_| false),
        ("prompt_embeds", &|_| false),
    ];
    for (name, is_harmless) in harmless {
        if fields.get(name).is_some_and(|value| !is_harmless(value)) {
            return Err(not_supported(name));
        }
    }
    Ok(())
}

fn not_supported(name: &str) -> ApiError {
    ApiError::unsupported(name, format!("{name} is not supported by this server"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// `seed` is for those who don't bring one.
fn sampling(fields: Fields<'_>, seed: u64) -> Result<Sampling, ApiError> {
    let temperature = fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0);
    let top_p = fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0);
    if top_p == 0.0 {
        return Err(ApiError::param("top_p", "top_p must be above 0"));
    }
    // -1 is what other servers call no limit.
    let unlimited = fields
        .get("top_k")
        .is_some_and(|k| matches!(k.as_i64(), Some(-1 | 0)));
    let top_k = if unlimited {
        None
    } else {
        fields.count("top_k")?
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers from 0 to 2 that the engine keeps as f32"
    )]
    let (temperature, top_p) = (temperature as f32, top_p as f32);
    Ok(Sampling {
        temperature,
        top_k: top_k.unwrap_or_default(),
        top_p,
        seed: fields.seed("seed")?.unwrap_or(seed),
    })
}

fn stop(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    let wrong = || {
        let message = format!(
            "stop must be a string or up to {MAX_STOPS} strings, none empty or longer than {MAX_STOP_BYTES} bytes"
        );
        ApiError::param("stop", message)
    };
    let texts: Vec<String> = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(wrong()),
    };
    let fits = texts.len() <= MAX_STOPS
        && texts
            .iter()
            .all(|text| (1..=MAX_STOP_BYTES).contains(&text.len()));
    if fits { Ok(texts) } else { Err(wrong()) }
}

fn include_usage(fields: Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    let Some(options) = fields.object("stream_options")? else {
        return Ok(false);
    };
    if !stream {
        return Err(ApiError::param(
            "stream_options",
            "stream_options is for streams: set stream to true",
        ));
    }
    Fields::new(options, "stream_options.").truth("include_usage")
}
