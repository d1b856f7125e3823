//! What clients, Kubernetes and Prometheus call: one HTTP server for both roles.
//!
//! On a decode agent it is an OpenAI-compatible endpoint. It knows HTTP and JSON and nothing of engines: a request that can
//! be read is handed in at [`Requests`], and what becomes of it is written as it comes.

mod admin;
mod admission;
mod answer;
mod chat;
mod choices;
mod completion;
mod connections;
mod error;
mod exchange;
mod extension;
mod fields;
mod health;
mod known;
mod logprobs;
mod models;
mod parse;
mod patience;
mod relay;
mod sampling;
mod serve;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use lynx_proto::operator::v1::Policy;
use lynx_units::Bytes;
use tokio::sync::{Semaphore, watch};

use self::admission::Gate;
pub use self::connections::{Limits, serve};
use self::error::ApiError;
pub use self::relay::{Served, relayed_events, relayed_request};
use crate::config::{Config, Role};
use crate::control::Status;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::requests::{Generate, ModelInfo, Requests};
use crate::session::Attachment;

/// What the server knows of its configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which end of the transfers this is: a prefill agent takes no requests of clients.
    pub role: Role,
    /// The largest body of a request.
    pub max_body: Bytes,
    /// Whether the endpoints that change the engine's prefix cache are there.
    pub admin: bool,
    /// Whether clients may ask for provisional tokens, where the operator does not say.
    pub allow_provisional: bool,
    /// How long a drain waits where its caller does not say.
    pub drain_deadline: Duration,
    /// How many requests may be under way at a time; more get 429.
    pub queue: usize,
    /// What the bodies of all requests under way may take.
    pub body_memory: Bytes,
    /// How long a request's body may take to come.
    pub body_timeout: Duration,
}

impl Settings {
    /// What of an agent's configuration the server uses.
    pub const fn new(config: &Config) -> Self {
        Self {
            role: config.role,
            max_body: config.http.max_body,
            admin: config.http.admin,
            allow_provisional: config.transfer.allow_provisional,
            drain_deadline: config.drain_deadline,
            queue: config.engine.queue,
            body_memory: config.http.body_memory,
            body_timeout: config.http.body_timeout,
        }
    }
}

/// What the server shares with the rest of the agent.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Where requests are handed in.
    pub requests: Requests,
    /// Whether there is an engine.
    pub attachment: watch::Receiver<Attachment>,
    /// How the role is.
    pub status: watch::Receiver<Status>,
    /// The operator's policy; `None` before it has told one.
    pub policy: watch::Receiver<Option<Policy>>,
    /// The engine's own server, where it has one: it answers clients.
    pub served: Option<Served>,
    /// Whether the agent is on its way out.
    pub drain: Drain,
    /// What is measured.
    pub metrics: Arc<Metrics>,
}

/// What handlers share.
#[derive(Clone, Debug)]
struct App {
    settings: Settings,
    inputs: Inputs,
    places: Arc<Semaphore>,
}

impl App {
    /// The attached engine's model.
    fn model(&self) -> Option<ModelInfo> {
        let attachment = self.inputs.attachment.borrow();
        attachment.engine.as_ref().map(|engine| ModelInfo {
            name: engine.model.clone(),
            context_tokens: engine.context_tokens,
            fingerprint: fingerprint(&engine.model_fingerprint),
        })
    }

    /// Why there is no engine.
    fn no_engine(&self) -> String {
        let error = self.inputs.attachment.borrow().error.clone();
        error
            .or_else(|| self.inputs.status.borrow().attach_error.clone())
            .map_or_else(
                || "no engine is attached yet".to_owned(),
                |error| format!("no engine is attached: {error}"),
            )
    }

    /// Why no work is taken; `None` where it is.
    fn unready(&self) -> Option<String> {
        if self.inputs.drain.is_draining() {
            Some("draining: new work goes to other replicas".to_owned())
        } else if self.model().is_none() || !self.inputs.status.borrow().ready {
            Some(self.no_engine())
        } else {
            // An engine attaches some time before its server listens.
            let served = self.inputs.served.as_ref();
            served.and_then(|served| served.health.borrow().clone())
        }
    }

    fn allows_provisional(&self) -> bool {
        self.inputs
            .policy
            .borrow()
            .as_ref()
            .map_or(self.settings.allow_provisional, |policy| {
                policy.allow_provisional
            })
    }
}

/// Which weights answer, in few characters.
fn fingerprint(weights: &[u8]) -> Option<String> {
    let digits = weights.iter().take(6).map(|byte| format!("{byte:02x}"));
    (!weights.is_empty()).then(|| format!("fp_{}", digits.collect::<String>()))
}

/// What a request says, without a server: what a request for `/v1/chat/completions`, or else `/v1/completions`, gives that
/// has these bytes as its body, at an agent that takes `most` requests at a time. For whoever wants to try all kinds of bytes.
///
/// # Errors
/// The message that its client would get.
pub fn read_request(
    is_chat: bool,
    body: &[u8],
    model: &ModelInfo,
    most: usize,
) -> Result<Vec<Generate>, String> {
    let form = if is_chat {
        answer::Form::Chat
    } else {
        answer::Form::Completion
    };
    match parse::read(form, body, model, 1, most) {
        Ok(parsed) => Ok(parsed.generates),
        Err(error) => Err(error.message().to_owned()),
    }
}

/// Another method than those of the path: the `Allow` header, which the router adds, names them.
async fn method(method: http::Method) -> Response {
    if method == http::Method::OPTIONS {
        http::StatusCode::NO_CONTENT.into_response()
    } else {
        ApiError::method().into_response()
    }
}

/// A path that is not served.
async fn nothing_here(State(app): State<App>, uri: http::Uri) -> ApiError {
    ApiError::no_such_path(match app.settings.role {
        Role::Prefill if uri.path().starts_with("/v1/") => {
            "this is a prefill agent, which answers no clients; ask a decode agent"
        }
        Role::Prefill => "there are /livez, /readyz, /startupz and /metrics",
        Role::Decode => {
            "there are /v1/chat/completions, /v1/completions, /v1/models, /v1/models/{id}, /livez, /readyz, /startupz and /metrics"
        }
    })
}

/// The order to drain, for a listener that clients don't reach.
pub fn drain_router(settings: &Settings, inputs: &Inputs) -> Router {
    let drain = health::Drain {
        drain: inputs.drain.clone(),
        patience: settings.drain_deadline,
    };
    Router::new()
        .route("/drain", any(health::drain))
        .with_state(drain)
}

/// What is answered where clients have all connections: how the agent is.
pub fn crowded_router(settings: &Settings, inputs: &Inputs) -> Router {
    let app = App {
        settings: settings.clone(),
        inputs: inputs.clone(),
        places: Arc::new(Semaphore::new(0)),
    };
    probes()
        .fallback(async || ApiError::crowded())
        .method_not_allowed_fallback(async || ApiError::method())
        .with_state(app)
}

fn probes() -> Router<App> {
    Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/startupz", get(health::started))
        .route("/metrics", get(health::metrics))
}

/// Everything else that is served.
pub fn router(settings: Settings, inputs: Inputs) -> Router {
    let limit = usize::try_from(settings.max_body.get()).unwrap_or(usize::MAX);
    let mut router = probes();
    if settings.role == Role::Decode {
        let models = if inputs.served.is_some() {
            get(relay::models)
        } else {
            get(models::list)
        };
        router = router
            .route("/v1/completions", post(completion::handle))
            .route("/v1/chat/completions", post(chat::handle))
            .route("/v1/models", models)
            .route("/v1/models/{*model}", get(models::one));
    }
    if settings.admin {
        router = router
            .route("/lynx/v1/prefix-cache/reset", post(admin::reset))
            .route("/lynx/v1/prefix-cache/warm", post(admin::warm));
    }
    let gate = Gate::new(
        settings.body_memory.get(),
        settings.max_body.get(),
        settings.body_timeout,
    );
    let places = Arc::new(Semaphore::new(settings.queue));
    let app = App {
        settings,
        inputs,
        places,
    };
    router
        .fallback(nothing_here)
        .method_not_allowed_fallback(method)
        .layer(DefaultBodyLimit::max(limit))
        .layer(middleware::from_fn_with_state(gate, admission::admit))
        .with_state(app)
}
