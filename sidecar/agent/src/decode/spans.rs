//! A request's part of its trace: queue, transfer, anchor, residual, draft, verify, decode.
//!
//! What the agent does itself are spans that begin and end here; what the engine does is told by its steps afterwards, and
//! made into spans of several steps each.

use lynx_proto::engine::v1::event::Kind as Step;
use lynx_proto::engine::v1::{Progress, TraceContext};
use lynx_telemetry::{Context, KeyValue, Kind, Span, attributes, names, span_at, start, start_at};
use lynx_units::BitRate;

use super::answer::Comparison;
use crate::clock::system_time;
use crate::counters::KvFailure;

/// The spans of one request.
#[derive(Debug)]
pub(super) struct Spans {
    parent: Context,
    queue: Option<Span>,
    transfer: Option<Span>,
    anchor: Option<Span>,
    residual: Option<Span>,
    draft: Steps,
    decode: Steps,
}

/// Steps of one kind, to be one span.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    tokens: u32,
    start_ns: u64,
    end_ns: u64,
}

impl Spans {
    /// A request of this trace has arrived, and waits for the engine.
    pub(super) fn arrived(trace: &TraceContext, start_ns: u64) -> Self {
        let parent = lynx_telemetry::context_from(&trace.traceparent, &trace.tracestate);
        let queue = start_at(names::QUEUE, Kind::Internal, &parent, system_time(start_ns));
        Self {
            parent,
            queue: Some(queue),
            transfer: None,
            anchor: None,
            residual: None,
            draft: Steps::default(),
            decode: Steps::default(),
        }
    }

    /// For log lines.
    pub(super) fn log(&self) -> tracing::Span {
        lynx_telemetry::log_span(&self.parent)
    }

    /// The engine has taken it.
    pub(super) fn taken(&mut self) {
        self.queue = None;
    }

    /// Its KV is asked for, from one of the peers that the operator told after a `look`; what the peer's spans take as their
    /// parent.
    pub(super) fn transfer_begins(&mut self, attributes: Vec<KeyValue>, look: &Context) -> Context {
        let transfer = start(names::TRANSFER, Kind::Client, &self.parent);
        transfer.link(look);
        for attribute in attributes {
            transfer.set(attribute);
        }
        let context = transfer.context().clone();
        self.anchor = Some(start(names::ANCHOR, Kind::Internal, &context));
        self.transfer = Some(transfer);
        context
    }

    /// The anchor is merged.
    pub(super) fn anchor_ready(&mut self, depth_limit: u32, link_bps: u64, bytes: u64) {
        if let Some(anchor) = self.anchor.take() {
            anchor.set(number(attributes::BYTES, bytes));
            anchor.set(number("lynx.draft.limit", depth_limit.into()));
            anchor.set(number(attributes::RATE, link_bps));
            let parent = self.transfer.as_ref().map(Span::context);
            let parent = parent.unwrap_or(&self.parent);
            self.residual = Some(start(names::RESIDUAL, Kind::Internal, parent));
        }
    }

    /// The transfer can't be finished, for a reason of this kind.
    pub(super) fn transfer_fails(&mut self, kind: KvFailure) {
        if let Some(transfer) = &self.transfer {
            transfer.set(KeyValue::new(attributes::ERROR_TYPE, kind.name()));
        }
    }

    /// The transfer has failed before anything of it came, and the peer `next` is asked instead.
    pub(super) fn retried(&mut self, why: &str, next: &str) {
        if let Some(transfer) = &self.transfer {
            let next = KeyValue::new(attributes::PEER, next.to_owned());
            transfer.event("lynx.transfer.retried", vec![next]);
        }
        self.transfer_ended([0; 2], BitRate::ZERO, Some(why));
    }

    /// The transfer has ended, at this mean rate: with all that it was to bring, or for this reason.
    pub(super) fn transfer_ended(&mut self, bytes: [u64; 2], rate: BitRate, failure: Option<&str>) {
        for (span, bytes) in [
            (self.anchor.take(), bytes[0]),
            (self.residual.take(), bytes[1]),
        ] {
            if let Some(span) = span {
                span.set(number(attributes::BYTES, bytes));
            }
        }
        if let Some(transfer) = self.transfer.take() {
            for attribute in attributes::bytes_by_priority(bytes) {
                transfer.set(attribute);
            }
            transfer.set(number(attributes::RATE, rate.bits_per_second()));
            if let Some(why) = failure {
                transfer.fail(why);
            }
        }
    }

    /// What a step did.
    pub(super) fn progress(&mut self, progress: &Progress) {
        let all_at_once = progress
            .events
            .iter()
            .any(|event| matches!(event.kind, Some(Step::Verified(_) | Step::Redrafted(_))));
        for event in &progress.events {
            let (start, end) = (event.start_unix_ns, event.end_unix_ns);
            match &event.kind {
                Some(Step::Token(token)) if token.provisional => self.draft.add(start, end),
                Some(Step::Token(token)) if token.index > 0 && !all_at_once => {
                    self.decode.add(start, end);
                }
                Some(Step::Recomputing(recomputing)) => {
                    let why = KeyValue::new(attributes::ERROR_TYPE, recomputing.reason.clone());
                    self.over(names::RECOMPUTE, start, end, vec![why]);
                }
                _ => {}
            }
        }
    }

    /// Drafts were compared with a finer KV.
    pub(super) fn compared(&mut self, comparison: &Comparison, anchor_bits: f64) {
        let draft = std::mem::take(&mut self.draft);
        if draft.tokens > 0 {
            let attributes = vec![
                number(attributes::DRAFTED, draft.tokens.into()),
                KeyValue::new(attributes::ANCHOR_BITS, anchor_bits),
            ];
            self.over(names::DRAFT, draft.start_ns, draft.end_ns, attributes);
        }
        let attributes = vec![
            number(attributes::DRAFTED, comparison.drafted.into()),
            number(attributes::ACCEPTED, comparison.kept.into()),
            KeyValue::new(attributes::ANCHOR_BITS, anchor_bits),
            KeyValue::new("lynx.verify.full", comparison.is_last),
        ];
        let (start, end) = (comparison.start_ns, comparison.end_ns);
        self.over(names::VERIFY, start, end, attributes);
    }

    /// The request has ended.
    pub(super) fn finished(&mut self) {
        let decode = std::mem::take(&mut self.decode);
        if decode.tokens > 0 {
            let tokens = vec![number(attributes::OUTPUT_TOKENS, decode.tokens.into())];
            self.over(names::DECODE, decode.start_ns, decode.end_ns, tokens);
        }
    }

    fn over(&self, name: &'static str, start: u64, end: u64, attributes: Vec<KeyValue>) {
        let (start, end) = (system_time(start), system_time(end));
        span_at(name, Kind::Internal, &self.parent, start, end, attributes);
    }
}

impl Steps {
    fn add(&mut self, start_ns: u64, end_ns: u64) {
        if self.tokens == 0 {
            self.start_ns = start_ns;
        }
        self.tokens += 1;
        self.end_ns = end_ns;
    }
}

fn number(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}
