//! Spans with an explicit parent.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::global;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};

/// The instrumentation scope of every span.
const SCOPE: &str = "lynx";

/// A span that has begun. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct Span {
    context: Context,
}

impl Span {
    /// What the parts of this span take as their parent.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Says something about the span; a later value replaces an earlier one.
    pub fn set(&self, attribute: KeyValue) {
        self.context.span().set_attribute(attribute);
    }

    /// Names a span of another trace that this one has to do with, where `other` is one that is kept.
    pub fn link(&self, other: &Context) {
        let other = other.span().span_context().clone();
        if other.is_valid() && other.is_sampled() {
            self.context.span().add_link(other, Vec::new());
        }
    }

    /// Something happened at this moment.
    pub fn event(&self, name: impl Into<Cow<'static, str>>, attributes: Vec<KeyValue>) {
        self.context.span().add_event(name, attributes);
    }

    /// Marks the span as failed, with the reason.
    pub fn fail(&self, reason: &str) {
        self.context
            .span()
            .set_status(Status::error(reason.to_owned()));
    }

    /// A span for log lines, with the trace's id: see [`log_span`].
    pub fn log(&self) -> tracing::Span {
        log_span(&self.context)
    }

    /// Ends it at another moment than now.
    pub fn end_at(self, end: SystemTime) {
        self.context.span().end_with_timestamp(end);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // Without effect where it was ended at another moment. Clones of the context must not keep the span open.
        self.context.span().end();
    }
}

/// Begins a span now.
pub fn start(name: impl Into<Cow<'static, str>>, kind: SpanKind, parent: &Context) -> Span {
    begin(SpanBuilder::from_name(name).with_kind(kind), parent)
}

/// Begins a span at a moment that has passed.
pub fn start_at(
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    parent: &Context,
    start: SystemTime,
) -> Span {
    begin(
        SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(start),
        parent,
    )
}

/// A span that is over. Its context is for parts that are told later.
pub fn span_at(
    name: impl Into<Cow<'static, str>>,
    kind: SpanKind,
    parent: &Context,
    start: SystemTime,
    end: SystemTime,
    attributes: impl IntoIterator<Item = KeyValue>,
) -> Context {
    let span = begin(
        SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(start)
            .with_attributes(attributes),
        parent,
    );
    let context = span.context.clone();
    span.end_at(end);
    context
}

/// Something happened at `time` in the span of `context`, which must not have ended.
pub fn event_at(
    context: &Context,
    name: impl Into<Cow<'static, str>>,
    time: SystemTime,
    attributes: Vec<KeyValue>,
) {
    context
        .span()
        .add_event_with_timestamp(name, time, attributes);
}

/// The trace's id in hexadecimal; `None` outside of any trace.
pub fn trace_id(context: &Context) -> Option<String> {
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| context.trace_id().to_string())
}

/// A `tracing` span whose log lines carry the trace's id. It is for logs only and never exported.
///
/// ```
/// # use lynx_telemetry as telemetry;
/// # let context = telemetry::Context::new();
/// telemetry::log_span(&context).in_scope(|| tracing::info!("the anchor is merged"));
/// // INFO trace{trace_id="0af7651916cd43dd8448eb211c80319c"}: the anchor is merged
/// ```
pub fn log_span(context: &Context) -> tracing::Span {
    trace_id(context).map_or_else(tracing::Span::none, |id| {
        tracing::info_span!("trace", trace_id = id)
    })
}

fn begin(builder: SpanBuilder, parent: &Context) -> Span {
    let span = builder.start_with_context(&global::tracer(SCOPE), parent);
    Span {
        context: parent.with_span(span),
    }
}
