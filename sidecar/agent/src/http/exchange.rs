//! What is measured and traced of one request, whichever way it ends.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use lynx_telemetry::{self as telemetry, Context, KeyValue, Kind, attributes, names};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::{Form, Head, finish_reason};
use super::error::ApiError;
use crate::metrics::{Metrics, Outcome};
use crate::requests::{Finish, Generate};

/// One request. Dropped before its end, it was aborted by its client.
#[derive(Debug)]
pub(super) struct Exchange {
    span: telemetry::Span,
    form: Form,
    metrics: Arc<Metrics>,
    arrived: Instant,
    tokens: u32,
    outcome: Outcome,
    /// Its place among the requests under way.
    place: Option<OwnedSemaphorePermit>,
}

impl Exchange {
    pub(super) fn begin(metrics: Arc<Metrics>, form: Form, parent: &Context) -> Self {
        let span = telemetry::start(names::REQUEST, Kind::Server, parent);
        span.set(KeyValue::new(attributes::OPERATION, form.operation()));
        span.set(KeyValue::new(attributes::PROVIDER, "lynx"));
        span.set(KeyValue::new(attributes::HTTP_METHOD, "POST"));
        span.set(KeyValue::new(attributes::HTTP_ROUTE, form.route()));
        Self {
            span,
            form,
            metrics,
            arrived: Instant::now(),
            tokens: 0,
            outcome: Outcome::Aborted,
            place: None,
        }
    }

    /// The values of `traceparent` and `tracestate` for whoever goes on with this request.
    pub(super) fn traceparent(&self) -> (String, String) {
        telemetry::inject(self.span.context())
    }

    /// For log lines.
    pub(super) fn log(&self) -> tracing::Span {
        self.span.log()
    }

    /// An id for the answer: the trace's, so that either finds the other.
    pub(super) fn answer_id(&self) -> String {
        let id = telemetry::trace_id(self.span.context())
            .unwrap_or_else(|| format!("{:016x}", RandomState::new().build_hasher().finish()));
        let span = self.traceparent().0;
        let span = span.split('-').nth(2).unwrap_or_default();
        match self.form {
            Form::Completion => format!("cmpl-{id}{span}"),
            Form::Chat => format!("chatcmpl-{id}{span}"),
        }
    }

    /// What is asked for, and of whom.
    pub(super) fn describe(
        &mut self,
        head: &Head,
        generate: &Generate,
        place: OwnedSemaphorePermit,
    ) {
        self.place = Some(place);
        let sampling = &generate.sampling;
        for attribute in [
            KeyValue::new(attributes::REQUEST_MODEL, head.model.clone()),
            KeyValue::new(attributes::RESPONSE_MODEL, head.model.clone()),
            KeyValue::new(attributes::RESPONSE_ID, head.id.clone()),
            KeyValue::new(attributes::MAX_TOKENS, i64::from(generate.max_tokens)),
            KeyValue::new(attributes::TEMPERATURE, f64::from(sampling.temperature)),
            KeyValue::new(attributes::TOP_P, f64::from(sampling.top_p)),
            KeyValue::new(attributes::SEED, sampling.seed.cast_signed()),
        ] {
            self.span.set(attribute);
        }
        if let Some(method) = generate.method {
            self.span
                .set(KeyValue::new(attributes::METHOD, method.id()));
        }
    }

    pub(super) fn accepted(&self, prompt_tokens: u32) {
        self.span.set(KeyValue::new(
            attributes::INPUT_TOKENS,
            i64::from(prompt_tokens),
        ));
    }

    /// Another one answers it: its place among those under way, and who is asked.
    pub(super) fn hold(&mut self, model: &str, place: OwnedSemaphorePermit) {
        self.place = Some(place);
        self.span
            .set(KeyValue::new(attributes::REQUEST_MODEL, model.to_owned()));
    }

    /// It was answered with this status by another one: because of what it asked for, or because something broke there.
    pub(super) fn answered(&mut self, status: http::StatusCode, was_refused: bool) {
        let code = status.as_u16();
        self.span
            .set(KeyValue::new(attributes::HTTP_STATUS, i64::from(code)));
        self.outcome = if was_refused {
            Outcome::Refused
        } else {
            self.span.fail("the engine's HTTP server failed");
            Outcome::Failed
        };
    }

    /// When the request arrived.
    pub(super) const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Seconds since the request arrived.
    pub(super) fn seconds(&self) -> f64 {
        self.arrived.elapsed().as_secs_f64()
    }

    /// A verified token is on its way to the client.
    pub(super) fn token(&mut self) {
        if self.tokens == 0 {
            self.span.event("first token", Vec::new());
        }
        self.tokens += 1;
    }

    pub(super) fn finish(&mut self, reason: Finish, completion_tokens: u32) {
        self.outcome = match reason {
            Finish::Stop => Outcome::Stop,
            Finish::Length => Outcome::Length,
        };
        self.tokens = completion_tokens;
        self.span.set(KeyValue::new(
            attributes::FINISH_REASONS,
            finish_reason(reason),
        ));
    }

    pub(super) fn fail(&mut self, error: &ApiError) {
        let status = error.status;
        self.outcome = if status.is_server_error() {
            Outcome::Failed
        } else {
            Outcome::Refused
        };
        self.span.set(KeyValue::new(
            attributes::HTTP_STATUS,
            i64::from(status.as_u16()),
        ));
        if status.is_server_error() {
            self.span.set(KeyValue::new(
                attributes::ERROR_TYPE,
                status.as_u16().to_string(),
            ));
            self.span.fail(error.message());
            tracing::warn!(
                status = status.as_u16(),
                "a request failed: {}",
                error.message()
            );
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if matches!(self.outcome, Outcome::Stop | Outcome::Length) {
            self.span.set(KeyValue::new(attributes::HTTP_STATUS, 200));
        }
        if self.outcome == Outcome::Aborted {
            self.span.event("the client went away", Vec::new());
        }
        self.span.set(KeyValue::new(
            attributes::OUTPUT_TOKENS,
            i64::from(self.tokens),
        ));
        self.metrics.request(self.outcome, self.seconds());
    }
}
