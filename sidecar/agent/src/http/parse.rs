//! A request's JSON made into [`Generate`]s, one for each choice.
//!
//! A pure function of bytes: who fuzzes it needs no server. What each field means is documented in `docs/agents.md`.

use std::sync::Arc;

use lynx_proto::engine::v1::TraceContext;
use serde_json::{Map, Value};

use super::answer::Form;
use super::error::ApiError;
use super::extension::{self, Extension};
use super::fields::{Fields, json_object};
use super::sampling::sampling;
use super::{chat, completion, known};
use crate::requests::{Generate, Input, ModelInfo};

/// How many stop texts there may be.
const MAX_STOPS: usize = 4;
/// The length of one.
const MAX_STOP_BYTES: usize = 1024;
/// How many choices a prompt may have.
const MAX_CHOICES: u32 = 128;

/// What is to be answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompts {
    /// At least one.
    pub(super) inputs: Vec<Input>,
    /// How many tokens each answer may have, where the request says.
    pub(super) max_tokens: Option<u32>,
}

/// What a request is, whatever it asks with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    /// One for each choice, in the order of their indices: all choices of the first prompt, then those of the next.
    pub(super) generates: Vec<Generate>,
    /// How many choices each prompt has.
    pub(super) choices: usize,
    /// Whether the answer is to come token by token.
    pub(super) stream: bool,
    /// Whether a stream ends with its usage.
    pub(super) include_usage: bool,
    /// Whether provisional tokens are wanted.
    pub(super) provisional: bool,
}

/// What the bytes of a request say, which may ask for `most` choices in all. Pure: equal bytes, model and `seed`, which is
/// for those who don't bring one, give an equal result.
pub(super) fn read(
    form: Form,
    body: &[u8],
    model: &ModelInfo,
    seed: u64,
    most: usize,
) -> Result<Parsed, ApiError> {
    parse(form, &json_object(body)?, model, seed, most)
}

/// What a request says.
pub(super) fn parse(
    form: Form,
    object: &Map<String, Value>,
    model: &ModelInfo,
    seed: u64,
    most: usize,
) -> Result<Parsed, ApiError> {
    let fields = Fields::new(object, "");
    let Some(asked) = fields.text("model")? else {
        let message = format!("name the model; there is {:?}", model.name);
        return Err(ApiError::missing("model", message));
    };
    if asked != model.name {
        return Err(ApiError::no_such_model(asked, &model.name));
    }
    known::check(form, object)?;
    let prompts = match form {
        Form::Completion => completion::prompts(fields)?,
        Form::Chat => chat::prompts(fields)?,
    };
    let stream = fields.truth("stream")?;
    let extension = extension::read(fields)?;
    refuse_events_without_stream(extension, stream)?;
    let choices = choices(fields)?;
    refuse_too_many(prompts.inputs.len(), choices, most)?;
    let first = Generate {
        input: Arc::new(Input::Text(String::new())),
        max_tokens: prompts
            .max_tokens
            .unwrap_or(model.context_tokens)
            .min(model.context_tokens),
        sampling: sampling(form, fields, seed)?,
        stop: stop(fields)?,
        ignore_eos: extension.ignore_eos,
        method: extension.method,
        anchor: extension.anchor,
        timeline: extension.timeline,
        trace: TraceContext::default(),
        group: 0,
    };
    Ok(Parsed {
        generates: each(&first, prompts.inputs, choices),
        choices: choices as usize,
        stream,
        include_usage: include_usage(fields, stream)?,
        provisional: extension.provisional,
    })
}

/// One for each prompt and choice; a prompt of megabytes is there once. Choice i of a prompt is what a request of its own gives with the seed plus i.
fn each(like: &Generate, inputs: Vec<Input>, choices: u32) -> Vec<Generate> {
    let choice = |input: &Arc<Input>, index: u32| {
        let mut generate = like.clone();
        generate.input = Arc::clone(input);
        generate.sampling.seed = like.sampling.seed.wrapping_add(index.into());
        generate
    };
    inputs
        .into_iter()
        .map(Arc::new)
        .flat_map(|input| (0..choices).map(move |index| choice(&input, index)))
        .collect()
}

/// How many choices each prompt has.
fn choices(fields: Fields<'_>) -> Result<u32, ApiError> {
    let n = fields.whole("n", 1, MAX_CHOICES)?.unwrap_or(1);
    let best_of = fields.whole("best_of", 1, MAX_CHOICES)?.unwrap_or(n);
    if best_of != n {
        let message = format!("best_of must be n, which is {n}: this server makes no others");
        return Err(ApiError::unsupported("best_of", message));
    }
    Ok(n)
}

/// Before they are made: a body of a few megabytes can ask for a hundred million.
fn refuse_too_many(prompts: usize, choices: u32, most: usize) -> Result<(), ApiError> {
    let all = prompts.saturating_mul(choices as usize);
    if all <= most {
        return Ok(());
    }
    let message = format!(
        "{all} choices in all are more than the {most} requests that this agent takes at a time"
    );
    Err(ApiError::param("n", message))
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

/// What stands in `stream_options`; `include_obfuscation` only pads chunks.
fn include_usage(fields: Fields<'_>, stream: bool) -> Result<bool, ApiError> {
    const NAMES: [&str; 2] = ["include_usage", "include_obfuscation"];
    let Some(options) = fields.object("stream_options")? else {
        return Ok(false);
    };
    if !stream {
        return Err(ApiError::param(
            "stream_options",
            "stream_options is for streams: set stream to true",
        ));
    }
    let options = Fields::new(options, "stream_options.");
    if let Some(unknown) = options.names().find(|name| !NAMES.contains(name)) {
        return Err(ApiError::unknown(&options.name(unknown)));
    }
    options.truth("include_usage")
}
