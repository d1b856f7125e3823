//! Traces in a real Jaeger.

mod server;

use std::time::{Duration, SystemTime};

use lynx_telemetry::{self as telemetry, KeyValue, Kind, Settings, attributes, names};
use serde_json::Value;

use server::{Jaeger, tag};

#[test]
fn one_trace_has_the_callers_id_every_span_its_parent_and_the_process_its_name() {
    let jaeger = Jaeger::start();
    let mut settings = Settings::new("lynx-agent");
    settings.instance = Some("decode-0".to_owned());
    settings.attributes = vec![KeyValue::new(attributes::DEPLOYMENT, "smol")];
    settings.otlp_endpoint = Some(format!("http://127.0.0.1:{}", jaeger.otlp));
    // What the caller decided wins over the ratio.
    settings.sampling = 0.0;
    let guard = telemetry::init(&settings).unwrap();

    let trace = "0af7651916cd43dd8448eb211c80319c";
    let caller = telemetry::context_from(&format!("00-{trace}-b7ad6b7169203331-01"), "");
    let request = telemetry::start(names::REQUEST, Kind::Server, &caller);
    request.set(KeyValue::new(attributes::METHOD, "lynx-exact"));
    let look = "4bf92f3577b34da6a3ce929d0e0e4736";
    request.link(&telemetry::context_from(
        &format!("00-{look}-00f067aa0ba902b7-01"),
        "",
    ));
    // What is of no trace, or of one that nobody keeps, is nothing to look for.
    request.link(&telemetry::Context::new());
    let lost = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-00";
    request.link(&telemetry::context_from(lost, ""));
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let end = start + Duration::from_millis(125);
    let drafted = [KeyValue::new(attributes::DRAFTED, 16)];
    telemetry::span_at(
        names::DRAFT,
        Kind::Internal,
        request.context(),
        start,
        end,
        drafted,
    );
    // As another process would go on.
    let (traceparent, tracestate) = telemetry::inject(request.context());
    let there = telemetry::context_from(&traceparent, &tracestate);
    let prefill = telemetry::start_at(names::PREFILL, Kind::Server, &there, start);
    prefill.fail("the engine is gone");
    prefill.end_at(end);
    drop(request);
    let nobody = telemetry::start("unsampled", Kind::Server, &telemetry::Context::new());
    assert!(telemetry::trace_id(nobody.context()).is_some());
    drop(nobody);
    drop(guard);

    let (spans, processes) = jaeger.spans(trace, 3);
    let named = |name: &str| {
        spans
            .iter()
            .find(|span| span["operationName"] == name)
            .unwrap_or_else(|| panic!("no {name} in {spans:?}"))
    };
    let (request, draft, prefill) = (
        named(names::REQUEST),
        named(names::DRAFT),
        named(names::PREFILL),
    );
    let parent = |span: &Value| span["references"][0]["spanID"].clone();
    assert_eq!(parent(request), "b7ad6b7169203331");
    assert_eq!(parent(draft), request["spanID"]);
    let links = request["references"].as_array().unwrap().iter();
    let links: Vec<_> = links
        .filter(|one| one["refType"] == "FOLLOWS_FROM")
        .collect();
    assert_eq!(links.len(), 1, "{request}");
    assert_eq!(links[0]["traceID"], look);
    assert_eq!(parent(prefill), request["spanID"]);
    assert_eq!(draft["duration"], 125_000);
    assert_eq!(draft["startTime"], 1_800_000_000_000_000_u64);
    assert_eq!(tag(&draft["tags"], attributes::DRAFTED), 16);
    assert_eq!(tag(&request["tags"], attributes::METHOD), "lynx-exact");
    assert_eq!(tag(&prefill["tags"], "error"), true);
    let process = &processes[request["processID"].as_str().unwrap()];
    assert_eq!(process["serviceName"], "lynx-agent");
    assert_eq!(tag(&process["tags"], "service.instance.id"), "decode-0");
    assert_eq!(tag(&process["tags"], attributes::DEPLOYMENT), "smol");
}
