//! One request, from its bytes to its answer.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};
use lynx_proto::engine::v1::TraceContext;
use lynx_telemetry as telemetry;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::Instrument as _;

use super::App;
use super::answer::{Form, Head, Usage};
use super::error::ApiError;
use super::exchange::Exchange;
use super::fields::{Fields, object};
use super::parse::{Parsed, parse};
use super::stream::{Chunks, Wanted};
use crate::clock;
use crate::requests::{Finish, Generated, Input};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Reads the prompt and the limit of tokens from a request.
pub(super) type ReadInput = fn(Fields<'_>) -> Result<(Input, Option<u32>), ApiError>;

/// Answers a request.
pub(super) async fn serve(
    app: App,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    form: Form,
    input: ReadInput,
) -> Response {
    let parent = telemetry::context_from_headers(headers);
    let mut exchange = Exchange::begin(app.inputs.metrics.clone(), form, &parent);
    let traceparent = exchange.traceparent().0;
    let log = exchange.log();
    let answered = async {
        match begin(&app, &mut exchange, form, body, input).await {
            Ok(started) => answer(exchange, started).await,
            Err(error) => refuse(exchange, &error),
        }
    };
    let mut response = answered.instrument(log).await;
    if let Ok(value) = HeaderValue::from_str(&traceparent)
        && !traceparent.is_empty()
    {
        response.headers_mut().insert(TRACEPARENT, value);
    }
    response
}

/// A request that the engine has taken.
struct Started {
    head: Head,
    wanted: Wanted,
    stream: bool,
    prompt_tokens: u32,
    /// What happened before the engine took it.
    early: Vec<Generated>,
    events: UnboundedReceiver<Generated>,
}

async fn begin(
    app: &App,
    exchange: &mut Exchange,
    form: Form,
    body: Result<Bytes, BytesRejection>,
    input: ReadInput,
) -> Result<Started, ApiError> {
    let object = object(body, app.settings.max_body.get())?;
    if app.inputs.drain.is_draining() {
        return Err(ApiError::unavailable(
            "this agent is draining: try again, another replica takes it",
        ));
    }
    let Some(model) = app.model() else {
        return Err(ApiError::unavailable(app.no_engine()));
    };
    let now_ns = clock::unix_ns();
    let parsed = parse(&object, &model, now_ns, input)?;
    // As values JSON takes many times its bytes, and the engine may take its time.
    drop(object);
    if parsed.provisional && !app.allows_provisional() {
        return Err(ApiError::forbidden(
            "lynx.provisional",
            "this deployment does not give tokens that are not verified (transfer.allowProvisional)",
        ));
    }
    let Ok(place) = app.places.clone().try_acquire_owned() else {
        return Err(ApiError::busy());
    };
    let head = Head {
        form,
        id: exchange.answer_id(),
        created: now_ns / 1_000_000_000,
        model: model.name,
    };
    exchange.describe(&head, &parsed.generate, place);
    let Parsed {
        mut generate,
        stream,
        include_usage,
        provisional,
    } = parsed;
    let (traceparent, tracestate) = exchange.traceparent();
    generate.trace = TraceContext {
        traceparent,
        tracestate,
    };
    let wanted = Wanted {
        usage: include_usage,
        provisional,
        timeline: generate.timeline,
    };
    let mut events = app.inputs.requests.generate(generate);
    // Only now it is known whether there will be an answer, and so which status to answer with.
    let (prompt_tokens, early) = accepted(&mut events).await?;
    exchange.accepted(prompt_tokens);
    Ok(Started {
        head,
        wanted,
        stream,
        prompt_tokens,
        early,
        events,
    })
}

/// The tokens of the prompt, and what came before they were told.
async fn accepted(
    events: &mut UnboundedReceiver<Generated>,
) -> Result<(u32, Vec<Generated>), ApiError> {
    let mut early = Vec::new();
    loop {
        match events.recv().await {
            Some(Generated::Accepted { prompt_tokens }) => return Ok((prompt_tokens, early)),
            Some(Generated::Failed(refusal)) => return Err(refusal.into()),
            Some(generated) => early.push(generated),
            None => return Err(ApiError::lost()),
        }
    }
}

fn refuse(mut exchange: Exchange, error: &ApiError) -> Response {
    exchange.fail(error);
    error.clone().into_response()
}

async fn answer(exchange: Exchange, started: Started) -> Response {
    let Started {
        head,
        wanted,
        stream,
        prompt_tokens,
        early,
        events,
    } = started;
    if stream {
        let mut chunks = Chunks::new(head, wanted, prompt_tokens, exchange, events);
        for generated in early {
            chunks.take(generated);
        }
        return chunks.respond();
    }
    match collect(exchange, events).await {
        Ok((text, reason, completion)) => {
            let usage = Usage {
                prompt: prompt_tokens,
                completion,
            };
            Json(head.whole(&text, reason, usage)).into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn collect(
    mut exchange: Exchange,
    mut events: UnboundedReceiver<Generated>,
) -> Result<(String, Finish, u32), ApiError> {
    let mut text = String::new();
    let error = loop {
        match events.recv().await {
            Some(Generated::Token {
                text: more,
                provisional: false,
                ..
            }) => {
                exchange.token();
                text.push_str(&more);
            }
            Some(Generated::Finished {
                reason,
                rest,
                completion_tokens,
                ..
            }) => {
                text.push_str(&rest);
                exchange.finish(reason, completion_tokens);
                return Ok((text, reason, completion_tokens));
            }
            Some(Generated::Failed(refusal)) => break refusal.into(),
            Some(_) => {}
            None => break ApiError::lost(),
        }
    };
    exchange.fail(&error);
    Err(error)
}
