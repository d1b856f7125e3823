//! Traces in a real Jaeger.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's failure is its report"
)]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use lynx_telemetry::{self as telemetry, KeyValue, Kind, Settings, attributes, names};
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Jaeger that ends with its test.
struct Jaeger {
    process: Child,
    otlp: u16,
    query: u16,
}

impl Jaeger {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = Command::new(root.join("scripts/kube-tools"))
            .args(["--where", "jaeger"])
            .output()
            .unwrap();
        let problem = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{problem}");
        let folder = String::from_utf8(found.stdout).unwrap();
        let [otlp, otlp_http, query, query_grpc, health] = free_ports();
        let process = Command::new(Path::new(folder.trim()).join("jaeger"))
            .arg("--config")
            .arg(root.join("tests/cluster/jaeger.yaml"))
            .env("ADDRESS", "127.0.0.1")
            .env("OTLP_GRPC", otlp.to_string())
            .env("OTLP_HTTP", otlp_http.to_string())
            .env("QUERY", query.to_string())
            .env("QUERY_GRPC", query_grpc.to_string())
            .env("HEALTH", health.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let jaeger = Self {
            process,
            otlp,
            query,
        };
        until(|| get(health, "/status").filter(|status| status.contains("StatusOK")));
        jaeger
    }

    /// The spans of a trace, once there are `count`.
    fn spans(&self, trace: &str, count: usize) -> (Vec<Value>, Value) {
        until(|| {
            let answer = get(self.query, &format!("/api/traces/{trace}"))?;
            let answer: Value = serde_json::from_str(&answer).ok()?;
            let trace = &answer["data"][0];
            let spans = trace["spans"].as_array()?.clone();
            (spans.len() == count).then(|| (spans, trace["processes"].clone()))
        })
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

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

fn tag(tags: &Value, key: &str) -> Value {
    let tags = tags.as_array().unwrap();
    let tag = tags.iter().find(|tag| tag["key"] == key);
    tag.unwrap_or_else(|| panic!("no {key} in {tags:?}"))["value"].clone()
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The body of a page; `None` where there is none yet.
fn get(port: u16, path: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real program is waited for, in real time"
)]
fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "Jaeger did not get there");
        std::thread::sleep(Duration::from_millis(50));
    }
}
