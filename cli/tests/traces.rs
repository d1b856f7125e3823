//! One trace of a request that goes through two agents and two engines, in a real Jaeger.
#![cfg(test)]

#[path = "../../telemetry/tests/jaeger/server.rs"]
mod server;
mod support;

use lynx::cluster::Cluster;
use lynx_telemetry::{attributes, names};
use serde_json::{Value, json};

use server::{Jaeger, tag};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Asks as a client does that has begun a trace.
async fn ask(decode: &str) {
    let prompt = &support::prose()[..300];
    let body = json!({
        "model": "model", "prompt": prompt, "max_tokens": 8,
        "lynx": {"ignore_eos": true, "method": "lynx-exact", "anchor_bits": 4.0},
    });
    let asked = reqwest::Client::new()
        .post(format!("http://{decode}/v1/completions"))
        .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
        .json(&body)
        .send();
    assert_eq!(asked.await.unwrap().status(), 200);
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    let is_it = |span: &&Value| span["operationName"] == name;
    spans.iter().filter(is_it).collect()
}

#[tokio::test]
async fn a_transfer_is_a_span_on_both_sides_with_its_bytes_by_priority() {
    let jaeger = Jaeger::start();
    let collector = format!("http://127.0.0.1:{}", jaeger.otlp);
    let traced = |config: &mut Value| config["telemetry"]["otlpEndpoint"] = json!(collector);
    let cluster = Cluster::start_with(&support::options(100, 2, 700), traced)
        .await
        .unwrap();
    ask(cluster.addresses().unwrap()[1]).await;
    let (spans, processes) = jaeger.spans_when(TRACE, |spans| {
        named(spans, names::TRANSFER).len() == 2 && named(spans, names::REQUEST).len() == 1
    });
    let role = |span: &Value| {
        let process = &processes[span["processID"].as_str().unwrap()];
        tag(&process["tags"], attributes::ROLE)
    };
    let transfers = named(&spans, names::TRANSFER);
    let of = |wanted: &str| *transfers.iter().find(|span| role(span) == wanted).unwrap();
    let (prefill, decode) = (of("prefill"), of("decode"));
    assert_eq!(prefill["references"][0]["spanID"], decode["spanID"]);
    let bytes = |span: &Value, key| tag(&span["tags"], key).as_u64().unwrap();
    for key in [attributes::ANCHOR_BYTES, attributes::RESIDUAL_BYTES] {
        let (sent, received) = (bytes(prefill, key), bytes(decode, key));
        assert!(sent > 0, "{key}");
        assert_eq!(sent, received, "{key}");
    }
    let [anchor] = named(&spans, names::ANCHOR)[..] else {
        panic!("one anchor: {spans:?}");
    };
    let sum = bytes(prefill, attributes::ANCHOR_BYTES) + bytes(prefill, attributes::RESIDUAL_BYTES);
    assert_eq!(bytes(prefill, attributes::BYTES), sum);
    let anchors = bytes(anchor, attributes::BYTES);
    assert_eq!(anchors, bytes(prefill, attributes::ANCHOR_BYTES));
}
