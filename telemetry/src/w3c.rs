//! W3C trace contexts, in and out of headers, gRPC metadata and plain strings.

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The caller's span as a parent, from the two headers' values. What is no context, or empty, gives none: a new trace.
pub fn context_from(traceparent: &str, tracestate: &str) -> Context {
    extract(&Pair {
        traceparent: traceparent.to_owned(),
        tracestate: tracestate.to_owned(),
    })
}

/// The caller's span as a parent, from an HTTP request's headers.
pub fn context_from_headers(headers: &HeaderMap) -> Context {
    extract(&Headers(headers))
}

/// The caller's span as a parent, from a gRPC request's metadata.
pub fn context_from_metadata(metadata: &MetadataMap) -> Context {
    extract(&Metadata(metadata))
}

/// The values of `traceparent` and `tracestate` for whoever goes on with this trace; empty where there is none.
pub fn inject(context: &Context) -> (String, String) {
    let mut pair = Pair::default();
    TraceContextPropagator::new().inject_context(context, &mut pair);
    (pair.traceparent, pair.tracestate)
}

/// Puts the context into a gRPC request's metadata.
pub fn inject_metadata(context: &Context, metadata: &mut MetadataMap) {
    TraceContextPropagator::new().inject_context(context, &mut MetadataMut(metadata));
}

/// Not on top of the current context: a parent comes from the caller, never from the thread.
fn extract(carrier: &dyn Extractor) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), carrier)
}

#[derive(Default)]
struct Pair {
    traceparent: String,
    tracestate: String,
}

impl Extractor for Pair {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => Some(&self.traceparent),
            TRACESTATE => Some(&self.tracestate),
            _ => None,
        }
        .map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

impl Injector for Pair {
    fn set(&mut self, key: &str, value: String) {
        match key {
            TRACEPARENT => self.traceparent = value,
            TRACESTATE => self.tracestate = value,
            _ => {}
        }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

struct Metadata<'a>(&'a MetadataMap);

impl Extractor for Metadata<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

struct MetadataMut<'a>(&'a mut MetadataMap);

impl Injector for MetadataMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if value.is_empty() {
            return;
        }
        if let (Ok(key), Ok(value)) = (
            key.parse::<MetadataKey<_>>(),
            value.parse::<MetadataValue<_>>(),
        ) {
            self.0.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt as _;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_survives_every_way() {
        let context = context_from(PARENT, "vendor=1");
        assert_eq!(inject(&context), (PARENT.to_owned(), "vendor=1".to_owned()));

        let mut metadata = MetadataMap::new();
        inject_metadata(&context, &mut metadata);
        assert_eq!(inject(&context_from_metadata(&metadata)).0, PARENT);

        let mut headers = HeaderMap::new();
        headers.insert("traceparent", PARENT.parse().unwrap());
        assert_eq!(inject(&context_from_headers(&headers)).0, PARENT);
    }

    #[test]
    fn what_is_no_context_starts_a_new_trace() {
        for bad in ["", "00", "hello", "00-zz-11-01", &PARENT[..40]] {
            let context = context_from(bad, "");
            assert!(!context.span().span_context().is_valid(), "{bad}");
            assert_eq!(inject(&context), (String::new(), String::new()), "{bad}");
        }
    }
}
