//! One request, from its bytes to its answer.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use lynx_proto::engine::v1::{TokenLogprobs, TraceContext};
use lynx_telemetry as telemetry;
use serde_json::Value;
use tracing::Instrument as _;

use super::answer::{Choice, Form, Head, Usage};
use super::choices::{Choices, lost};
use super::error::ApiError;
use super::exchange::Exchange;
use super::fields::bytes;
use super::logprobs::Told;
use super::parse::{Parsed, read};
use super::stream::{Chunks, Wanted};
use super::{App, relay};
use crate::clock;
use crate::requests::{Finish, Generate, Generated};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers a request.
pub(super) async fn serve(
    app: App,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    form: Form,
) -> Response {
    let parent = telemetry::context_from_headers(headers);
    let mut exchange = Exchange::begin(app.inputs.metrics.clone(), form, &parent);
    let (id, traceparent) = (exchange.answer_id(), exchange.traceparent().0);
    let log = exchange.log();
    let answered = async {
        if let Err(error) = media_type(headers) {
            return refuse(exchange, &error);
        }
        if let Some(served) = &app.inputs.served {
            return relay::serve(&app, served, exchange, headers, (form, body)).await;
        }
        match begin(&app, &mut exchange, form, body).await {
            Ok(started) => answer(exchange, started).await,
            Err(error) => refuse(exchange, &error),
        }
    };
    let mut response = answered.instrument(log).await;
    for (name, value) in [(TRACEPARENT, traceparent), (REQUEST_ID, id)] {
        if let Ok(value) = HeaderValue::from_str(&value)
            && !value.is_empty()
        {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Anything but plain JSON is refused, as far as the client says what it sends: what a browser sends for another site without
/// asking first is never JSON. JSON is UTF-8, and nothing here takes it out of a compression.
fn media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let said = |name: &HeaderName| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase())
    };
    if let Some(coding) = said(&header::CONTENT_ENCODING)
        && coding.trim() != "identity"
    {
        return Err(ApiError::media_type(
            "Content-Encoding",
            &coding,
            "no compression",
        ));
    }
    let Some(kind) = said(&header::CONTENT_TYPE) else {
        return Ok(());
    };
    let mut parts = kind.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let is_utf8 = |part: &str| {
        let charset = part
            .strip_prefix("charset=")
            .map(|set| set.trim_matches('"'));
        charset.is_none_or(|set| matches!(set, "utf-8" | "utf8" | "us-ascii"))
    };
    if is_json && parts.all(is_utf8) {
        Ok(())
    } else {
        Err(ApiError::media_type(
            "Content-Type",
            &kind,
            "application/json in UTF-8",
        ))
    }
}

/// A request that the engine has taken.
struct Started {
    head: Head,
    wanted: Wanted,
    stream: bool,
    usage: Usage,
    /// What happened before the engine took all prompts.
    early: Vec<(usize, Generated)>,
    events: Choices,
    /// How many choices there are.
    choices: usize,
}

async fn begin(
    app: &App,
    exchange: &mut Exchange,
    form: Form,
    body: Result<Bytes, BytesRejection>,
) -> Result<Started, ApiError> {
    let body = bytes(body, app.settings.max_body.get())?;
    if !app.inputs.drain.admits() {
        return Err(ApiError::unavailable(
            "this agent is draining: try again, another replica takes it",
        ));
    }
    let Some(model) = app.model() else {
        return Err(ApiError::unavailable(app.no_engine()));
    };
    let now_ns = clock::unix_ns();
    let parsed = read(form, &body, &model, now_ns, app.settings.queue)?;
    // The engine may take its time.
    drop(body);
    if parsed.provisional && !app.allows_provisional() {
        return Err(ApiError::forbidden(
            "lynx.provisional",
            "this deployment does not give tokens that are not verified (transfer.allowProvisional)",
        ));
    }
    let choices = parsed.generates.len();
    let places = u32::try_from(choices).ok();
    let place = places.and_then(|places| app.places.clone().try_acquire_many_owned(places).ok());
    let place = place.ok_or_else(ApiError::busy)?;
    let head = Head {
        form,
        id: exchange.answer_id(),
        created: now_ns / 1_000_000_000,
        model: model.name,
        fingerprint: model.fingerprint,
    };
    if let Some(first) = parsed.generates.first() {
        exchange.describe(&head, first, place);
    }
    let wanted = wanted(&parsed);
    let (each, stream) = (parsed.choices, parsed.stream);
    let mut events = hand_in(app, exchange, parsed);
    // Only now it is known whether there will be an answer, and so which status to answer with.
    let taken = accepted(&mut events, choices, each).await;
    let (usage, early) = taken.map_err(|error| error.of_prompt(form.prompt()))?;
    exchange.accepted(usage.prompt);
    Ok(Started {
        head,
        wanted,
        stream,
        usage,
        early,
        events,
        choices,
    })
}

fn wanted(parsed: &Parsed) -> Wanted {
    let any = |is: fn(&Generate) -> bool| parsed.generates.iter().any(is);
    Wanted {
        usage: parsed.include_usage,
        logprobs: any(|generate| generate.sampling.top_logprobs.is_some()),
        provisional: parsed.provisional,
        timeline: any(|generate| generate.timeline),
    }
}

/// Hands in every choice; those of one prompt as a group.
fn hand_in(app: &App, exchange: &Exchange, parsed: Parsed) -> Choices {
    let (traceparent, tracestate) = exchange.traceparent();
    let requests = &app.inputs.requests;
    let (each, mut group) = (parsed.choices, 0);
    let choices = parsed.generates.into_iter().enumerate();
    let receivers = choices.map(|(index, mut generate)| {
        if each > 1 && index.is_multiple_of(each) {
            group = requests.group();
        }
        generate.group = group;
        generate.trace = TraceContext {
            traceparent: traceparent.clone(),
            tracestate: tracestate.clone(),
        };
        requests.generate(generate)
    });
    Choices::new(receivers.collect())
}

/// The tokens of the prompts, and what came before all were told. The first choice of a prompt speaks for the others.
async fn accepted(
    events: &mut Choices,
    choices: usize,
    each: usize,
) -> Result<(Usage, Vec<(usize, Generated)>), ApiError> {
    let mut early = Vec::new();
    let mut usage = Usage::default();
    let mut missing = choices / each.max(1);
    while missing > 0 {
        match events.next().await {
            Some((
                index,
                Generated::Accepted {
                    prompt_tokens,
                    cached_tokens,
                },
            )) => {
                if index.is_multiple_of(each) {
                    usage.prompt = usage.prompt.saturating_add(prompt_tokens);
                    usage.cached = usage.cached.saturating_add(cached_tokens);
                    missing -= 1;
                }
            }
            Some((_, Generated::Failed(refusal))) => return Err(refusal.into()),
            Some(other) => early.push(other),
            None => return Err(lost().into()),
        }
    }
    Ok((usage, early))
}

fn refuse(mut exchange: Exchange, error: &ApiError) -> Response {
    exchange.fail(error);
    error.clone().into_response()
}

async fn answer(mut exchange: Exchange, started: Started) -> Response {
    if started.stream {
        let Started {
            head,
            wanted,
            usage,
            early,
            events,
            choices,
            ..
        } = started;
        let mut chunks = Chunks::new(head, wanted, usage, exchange, (events, choices));
        for (index, generated) in early {
            chunks.take(index, generated);
        }
        return chunks.respond();
    }
    let head = started.head.clone();
    match collect(&mut exchange, started).await {
        Ok((choices, usage)) => Json(head.whole(choices, usage)).into_response(),
        Err(error) => refuse(exchange, &error),
    }
}

/// One choice while it grows.
#[derive(Clone, Debug, Default)]
struct Growing {
    text: String,
    logprobs: Vec<TokenLogprobs>,
    reason: Option<Finish>,
}

async fn collect(
    exchange: &mut Exchange,
    started: Started,
) -> Result<(Vec<Choice>, Usage), ApiError> {
    let Started {
        head,
        wanted,
        mut usage,
        early,
        mut events,
        choices,
        ..
    } = started;
    let mut growing = vec![Growing::default(); choices];
    let mut early = early.into_iter();
    while growing.iter().any(|choice| choice.reason.is_none()) {
        let next = match early.next() {
            Some(early) => Some(early),
            None => events.next().await,
        };
        let (index, generated) = next.ok_or_else(|| ApiError::from(lost()))?;
        let choice = &mut growing[index];
        match generated {
            Generated::Token {
                text,
                provisional: false,
                logprobs,
                ..
            } => {
                exchange.token();
                choice.text.push_str(&text);
                choice.logprobs.extend(logprobs);
            }
            Generated::Finished {
                reason,
                rest,
                logprobs,
                completion_tokens,
                ..
            } => {
                choice.text.push_str(&rest);
                choice.logprobs.extend(logprobs);
                choice.reason = Some(reason);
                usage.completion = usage.completion.saturating_add(completion_tokens);
            }
            Generated::Failed(refusal) => return Err(refusal.into()),
            _ => {}
        }
    }
    let mut told = Vec::with_capacity(growing.len());
    for choice in growing {
        let reason = choice.reason.unwrap_or(Finish::Length);
        exchange.finish(reason, usage.completion);
        let logprobs = if wanted.logprobs {
            Told::default().json(head.form, &choice.logprobs)
        } else {
            Value::Null
        };
        told.push(Choice {
            text: choice.text,
            reason,
            logprobs,
        });
    }
    Ok((told, usage))
}
