//! Errors in OpenAI's shape.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::requests::Refusal;

/// How many seconds a client that may try again should wait.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// How much of what a client said is said back, in characters.
const ECHO: usize = 64;

/// The code of a prompt that is longer than the context.
const TOO_LONG: &str = "context_length_exceeded";

/// A request that is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            kind,
            param: None,
            code: None,
        }
    }

    /// The request is at fault, not one of its fields.
    pub(super) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// This field is at fault.
    pub(super) fn param(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            code: Some("invalid_value"),
            ..Self::request(message)
        }
    }

    /// This field has to be there.
    pub(super) fn missing(param: &str, message: impl Into<String>) -> Self {
        Self {
            code: Some("missing_required_parameter"),
            ..Self::param(param, message)
        }
    }

    /// There is no such field.
    pub(super) fn unknown(param: &str) -> Self {
        let param = echo(param);
        Self {
            code: Some("unknown_parameter"),
            ..Self::param(
                &param,
                format!("there is no field {param}: leave it out, or see whether it is misspelt"),
            )
        }
    }

    /// An object has no such field.
    pub(super) fn unknown_among(param: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        Self {
            code: Some("unknown_parameter"),
            ..Self::param(param, format!("there is no {param}; there are {known}"))
        }
    }

    /// The field is one of another path's.
    pub(super) fn elsewhere(param: &str, path: &str) -> Self {
        Self {
            code: Some("unknown_parameter"),
            ..Self::param(param, format!("{param} is for {path}: ask there"))
        }
    }

    /// The body is something else than what is taken, as this header says.
    pub(super) fn media_type(header: &str, found: &str, wanted: &str) -> Self {
        let found = echo(found);
        Self {
            code: Some("unsupported_media_type"),
            ..Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid_request_error",
                format!("the {header} is {found:?}: send {wanted}"),
            )
        }
    }

    /// What an engine refuses, with the field that it is about: the prompt's, `field`, unless it names a bias.
    pub(super) fn of_prompt(mut self, field: &str) -> Self {
        const BIAS: &str = "logit_bias";
        if self.status == StatusCode::BAD_REQUEST && self.param.is_none() {
            let is_bias = self.message.starts_with(BIAS);
            self.param = Some(if is_bias { BIAS } else { field }.to_owned());
        }
        self
    }

    /// This field asks for what Lynx does not do.
    pub(super) fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::param(param, message)
        }
    }

    /// The deployment doesn't allow it.
    pub(super) fn forbidden(param: &str, message: &str) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            kind: "permission_error",
            code: Some("not_allowed"),
            ..Self::param(param, message)
        }
    }

    pub(super) fn no_such_model(asked: &str, served: &str) -> Self {
        let asked = echo(asked);
        Self {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Self::param(
                "model",
                format!("there is no model {asked:?} here; there is {served:?}"),
            )
        }
    }

    /// There is nothing at this path; `instead` is what there is.
    pub(super) fn no_such_path(instead: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            format!("there is nothing at this path: {instead}"),
        )
    }

    pub(super) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid_request_error",
            "this path has other methods: see the Allow header",
        )
    }

    pub(super) fn too_large(limit: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            format!("the request has more than {limit} bytes, which is the limit here"),
        )
    }

    /// Too many requests are under way.
    pub(super) fn busy() -> Self {
        Self {
            code: Some("rate_limit_exceeded"),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_error",
                "as many requests as this agent takes are under way: try again soon",
            )
        }
    }

    /// Not now, or not here.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_unavailable",
            message,
        )
    }

    /// What requests under way hold is all that they may.
    pub(super) fn no_memory() -> Self {
        Self {
            message: "requests under way hold as much memory as this agent gives them (http.bodyMemory): try again soon".to_owned(),
            ..Self::busy()
        }
    }

    /// Clients have all connections.
    pub(super) fn crowded() -> Self {
        Self::unavailable(
            "as many connections as this agent takes are open (http.maxConnections): try again soon",
        )
    }

    /// The body did not come in time.
    pub(super) fn slow(patience: Duration) -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            format!("the request's body was not here within {patience:?}"),
        )
    }

    fn broken(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// `{"error": {...}}`.
    pub(super) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// What a client said, cut to what a person reads.
pub(super) fn echo(said: &str) -> String {
    match said.char_indices().nth(ECHO) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(message) => Self {
                code: Some("invalid_value"),
                ..Self::request(message)
            },
            Refusal::Busy(message) => Self {
                message,
                ..Self::busy()
            },
            Refusal::TooLong(message) => Self {
                code: Some(TOO_LONG),
                ..Self::request(message)
            },
            Refusal::Unavailable(message) => Self::unavailable(message),
            Refusal::Failed(message) => Self::broken(message),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if matches!(
            self.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
