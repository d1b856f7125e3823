//! Tracing and OpenTelemetry for every process of Lynx.
//!
//! One [`init`] at the start of a process: log lines to standard error, spans to an OTLP collector where one is configured.
//! Everything works without a collector, and nothing waits for one: spans that can't be sent are dropped, and that is said
//! once. The [`Guard`] sends what is left when the process ends.
//!
//! Spans are made from times ([`span_at`]), because what happens to a request is reported by engines and peers after it
//! happened, or begun here and ended by drop ([`start`]). They are explicit, not derived from `tracing` spans: a request
//! crosses tasks, threads and processes, and its parent is always at hand as a [`Context`]. [`log_span`] puts the trace's id
//! into log lines.
//!
//! ```
//! use lynx_telemetry as telemetry;
//! use telemetry::{Context, Kind, KeyValue, attributes, names};
//!
//! let parent = telemetry::context_from("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "");
//! let request = telemetry::start(names::REQUEST, Kind::Server, &parent);
//! request.set(KeyValue::new(attributes::METHOD, "lynx-exact"));
//! let (traceparent, _) = telemetry::inject(request.context());
//! // ... traceparent goes to the engine and the peer; the span ends when `request` is dropped.
//! # assert!(traceparent.is_empty() || traceparent.contains("0af7651916cd43dd8448eb211c80319c"));
//! ```

pub mod attributes;
mod chain;
mod exporter;
mod filter;
pub mod names;
mod settings;
mod setup;
mod span;
mod w3c;

pub use chain::chain;
pub use filter::{FilterError, check_filter};
pub use opentelemetry::trace::SpanKind as Kind;
pub use opentelemetry::{Context, KeyValue};
pub use settings::{LogFormat, Settings};
pub use setup::{Guard, InitError, init};
pub use span::{Span, event_at, log_span, span_at, start, start_at, trace_id};
pub use w3c::{context_from, context_from_headers, context_from_metadata, inject, inject_metadata};
