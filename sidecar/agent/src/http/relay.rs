//! Requests that an engine's own HTTP server answers: handed on, watched, and handed back as they come.
//!
//! The agent is in front of such an engine for the sake of its bounds, its drain and its number for each request, by which the
//! engine says later whose KV it wants. It refuses to know the engine's interface: of a request it reads what is its own
//! affair and adds the number, and of an answer it reads how it ended. Nothing of a request's head goes on but what is named
//! here, nor of an answer's: no two servers need to agree where a message ends.

mod answer;
mod lines;
mod members;
mod question;
mod trial;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse as _, Response};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use lynx_proto::engine::v1::TraceContext;
use tokio::sync::watch;

use self::answer::Answer;
use self::question::Question;
pub use self::trial::{relayed_events, relayed_request};
use super::App;
use super::answer::Form;
use super::error::ApiError;
use super::exchange::Exchange;
use super::fields::bytes;
use crate::clients::{Client, Clients, Known};
use crate::clock;
use crate::drain::InFlight;
use crate::session::Attachment;
use crate::upstream::{Health, NoAnswer, Upstream};

/// What of a request's head goes on.
const FORWARD: [HeaderName; 2] = [header::ACCEPT, header::AUTHORIZATION];
/// What of an answer's goes back.
const BACK: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
];
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// How the type of a stream begins.
const EVENTS: &[u8] = b"text/event-stream";
/// How long an engine may be away before what it was answering is given up: its server may go on by itself.
const AWAY: Duration = Duration::from_secs(10);

/// An engine's own server, and what is shared with the data path about it.
#[derive(Clone, Debug)]
pub struct Served {
    /// Where it is asked.
    pub upstream: Upstream,
    /// Whether it answers.
    pub health: Health,
    /// Whose requests it has.
    pub clients: Clients,
}

/// What a request holds until the last byte of its answer is gone.
struct Hold {
    _known: Known,
    _in_flight: InFlight,
}

/// Why an answer ends that its client still wants.
#[derive(Clone)]
struct End {
    clients: Clients,
    attachment: watch::Receiver<Attachment>,
}

impl End {
    /// Waits for it.
    async fn come(mut self) -> ApiError {
        tokio::select! {
            () = self.clients.ended() => ApiError::unavailable(
                "this agent ends before the answer did: try again, another replica takes it",
            ),
            () = away(&mut self.attachment) => ApiError::unavailable("the engine is gone: try again"),
        }
    }
}

/// Waits until there was no engine for a while.
async fn away(attachment: &mut watch::Receiver<Attachment>) {
    loop {
        // The sender ends with the agent, and what then is to be told is told otherwise.
        let gone = attachment.wait_for(|state| state.engine.is_none());
        if gone.await.is_err() {
            std::future::pending::<()>().await;
        }
        let back = attachment.wait_for(|state| state.engine.is_some());
        if tokio::time::timeout(AWAY, back).await.is_err() {
            return;
        }
    }
}

/// Answers a request by the engine's server.
pub(super) async fn serve(
    app: &App,
    served: &Served,
    mut exchange: Exchange,
    headers: &HeaderMap,
    (form, body): (Form, Result<Bytes, BytesRejection>),
) -> Response {
    let end = End {
        clients: served.clients.clone(),
        attachment: app.inputs.attachment.clone(),
    };
    let asked = ask(app, served, &mut exchange, headers, (form, body));
    let asked = tokio::select! {
        asked = asked => asked,
        why = end.clone().come() => Err(why),
    };
    match asked {
        Ok((answer, hold)) => {
            let (head, body) = back(answer);
            let kind = head.headers.get(header::CONTENT_TYPE);
            let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENTS));
            let answer = Answer::new(exchange, hold, end, (head.status, body));
            let body = if is_stream {
                Ok(answer.stream())
            } else {
                answer.whole().await
            };
            match body {
                Ok(body) => Response::from_parts(head, body),
                Err(error) => error.into_response(),
            }
        }
        Err(error) => {
            exchange.fail(&error);
            error.into_response()
        }
    }
}

async fn ask(
    app: &App,
    served: &Served,
    exchange: &mut Exchange,
    headers: &HeaderMap,
    (form, body): (Form, Result<Bytes, BytesRejection>),
) -> Result<(Response, Hold), ApiError> {
    let body = bytes(body, app.settings.max_body.get())?;
    let Some(model) = app.model() else {
        return Err(ApiError::unavailable(app.no_engine()));
    };
    let question = Question::read(&body)?;
    let most = app.settings.queue;
    if question.choices > most {
        let why = format!("at most {most} answers can be asked for at a time (engine.queue)");
        return Err(ApiError::param("n", why));
    }
    let in_flight = app.inputs.drain.enter().ok_or_else(|| {
        ApiError::unavailable("this agent is draining: try again, another replica takes it")
    })?;
    let places = u32::try_from(question.choices).unwrap_or(u32::MAX);
    let place = Arc::clone(&app.places).try_acquire_many_owned(places);
    exchange.hold(&model.name, place.map_err(|_| ApiError::busy())?);
    let (traceparent, tracestate) = exchange.traceparent();
    let known = served.clients.enter(Client {
        trace: TraceContext {
            traceparent,
            tracestate,
        },
        arrived: (exchange.arrived(), clock::unix_ns()),
        method: question.extension.method,
        anchor: question.extension.anchor,
    });
    let text = question.write(known.number(), unique());
    // The answer may take its time.
    drop(question);
    drop(body);
    let path = (Method::POST, form.route());
    let answer = served
        .upstream
        .ask(path, forward(headers, exchange), text.into());
    let hold = Hold {
        _known: known,
        _in_flight: in_flight,
    };
    Ok((answer.await.map_err(no_answer)?, hold))
}

/// The head of what is asked: what is let through of the client's, and what this agent says itself.
fn forward(headers: &HeaderMap, exchange: &Exchange) -> HeaderMap {
    let mut head = some_of(headers, &FORWARD);
    head.insert(header::CONTENT_TYPE, JSON);
    let (id, (traceparent, tracestate)) = (exchange.answer_id(), exchange.traceparent());
    // The engine sets the same before it again.
    let bare = id.split_once('-').map_or(id.as_str(), |(_, bare)| bare);
    for (name, value) in [
        (REQUEST_ID, bare),
        (TRACEPARENT, &traceparent),
        (TRACESTATE, &tracestate),
    ] {
        if let Ok(value) = HeaderValue::from_str(value)
            && !value.is_empty()
        {
            head.insert(name, value);
        }
    }
    head
}

fn no_answer(why: NoAnswer) -> ApiError {
    ApiError::unavailable(format!("{why}: try again"))
}

/// A number that nobody has had before, or can guess.
fn unique() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// `/v1/models`, as the engine's server has it.
pub(super) async fn models(
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let served = app.inputs.served.as_ref();
    let served = served.ok_or_else(|| ApiError::unavailable(app.no_engine()))?;
    let head = some_of(&headers, &FORWARD);
    let asked = served
        .upstream
        .ask((Method::GET, "/v1/models"), head, Bytes::new());
    let answer = asked.await.map_err(no_answer)?;
    let (head, body) = back(answer);
    Ok(Response::from_parts(head, body))
}

/// What of an answer goes back: its status, what is let through of its head, and its body.
fn back(answer: Response) -> (Parts, Body) {
    let (mut head, body) = answer.into_parts();
    let kept = some_of(&head.headers, &BACK);
    head.headers = kept;
    head.extensions.clear();
    head.version = http::Version::HTTP_11;
    (head, body)
}

fn some_of(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let kept = names
        .iter()
        .filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_stays_away_has_its_answers_given_up() {
        let attachment = watch::Sender::new(Attachment::default());
        let engine = |state: &mut Attachment| state.engine = Some(Arc::default());
        attachment.send_modify(engine);
        let away = {
            let mut watched = attachment.subscribe();
            async move { away(&mut watched).await }
        };
        let away = tokio::spawn(away);
        for _ in 0..3 {
            attachment.send_modify(|state| state.engine = None);
            tokio::time::sleep(Duration::from_secs(5)).await;
            attachment.send_modify(engine);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert!(!away.is_finished());
        let begun = tokio::time::Instant::now();
        attachment.send_modify(|state| state.engine = None);
        away.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 10);
    }
}
