//! A Jaeger for a test, and what it has been told.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "each test program uses a part of it, and what can't be set up has failed"
)]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lynx_ports::HeldAddress;
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A Jaeger that ends with its test.
pub(crate) struct Jaeger {
    process: Child,
    pub(crate) otlp: u16,
    query: u16,
}

impl Jaeger {
    pub(crate) fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = Command::new(root.join("scripts/kube-tools"))
            .args(["--where", "jaeger"])
            .output()
            .unwrap();
        let problem = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{problem}");
        let folder = String::from_utf8(found.stdout).unwrap();
        let held = [(); 5].map(|()| HeldAddress::take().unwrap());
        let [otlp, otlp_http, query, query_grpc, health] =
            held.each_ref().map(|held| held.address().port());
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

    /// The spans of a trace, once there are `count`, and the processes that made them.
    pub(crate) fn spans(&self, trace: &str, count: usize) -> (Vec<Value>, Value) {
        self.spans_when(trace, |spans| spans.len() == count)
    }

    /// The same once they are as they should be.
    pub(crate) fn spans_when(
        &self,
        trace: &str,
        are_there: impl Fn(&[Value]) -> bool,
    ) -> (Vec<Value>, Value) {
        until(|| {
            let answer = get(self.query, &format!("/api/traces/{trace}"))?;
            let answer: Value = serde_json::from_str(&answer).ok()?;
            let trace = &answer["data"][0];
            let spans = trace["spans"].as_array()?.clone();
            are_there(&spans).then(|| (spans, trace["processes"].clone()))
        })
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// An attribute of a span or of a process.
pub(crate) fn tag(tags: &Value, key: &str) -> Value {
    let tags = tags.as_array().unwrap();
    let tag = tags.iter().find(|tag| tag["key"] == key);
    tag.unwrap_or_else(|| panic!("no {key} in {tags:?}"))["value"].clone()
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
