//! A decode agent that is told to end while it answers: real processes, an engine that computes its prompts itself.
#![cfg(test)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use lynx_ports::HeldAddress;
use support::{Folder, lynx, model, signal, until, wait_at_most};

/// Long enough for what a test does meanwhile.
const LONG: u32 = 700;
/// It ends by itself, and later than a busy machine needs to look at the agent.
const SHORT: u32 = 240;

/// An agent with its engine.
struct Node {
    agent: Child,
    log: BufReader<ChildStderr>,
    engine: Child,
    http: SocketAddr,
    drain: SocketAddr,
    _folder: Folder,
}

impl Drop for Node {
    fn drop(&mut self) {
        for process in [&mut self.agent, &mut self.engine] {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn start(deadline: &str) -> Node {
    let folder = Folder::new();
    let held = HeldAddress::take().unwrap();
    let (drain, directory) = (held.address(), folder.path(""));
    let config = folder.write(
        "agent.yaml",
        format!(
            "{{role: decode, listen: {{http: '127.0.0.1:0', drain: '{drain}'}}, drain: {{deadline: {deadline}}}, \
             engine: {{socket: {directory}/engine.sock, sharedDirectory: {directory}}}}}"
        ),
    );
    let mut agent = lynx()
        .args(["agent", "--config", &config])
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(agent.stderr.take().unwrap());
    let http = loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the agent ended");
        if let Some((_, address)) = line.trim().split_once("http=") {
            break address.parse().unwrap();
        }
    };
    let engine = lynx()
        .args([
            "engine",
            "--role",
            "decode",
            "--name",
            "model",
            "--max-tokens",
            "2048",
        ])
        .args(["--socket", &folder.path("engine.sock")])
        .args(["--shared-directory", &directory])
        .arg("--model")
        .arg(model())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let node = Node {
        agent,
        log,
        engine,
        http,
        drain,
        _folder: folder,
    };
    until("the agent is ready", || {
        get(http, "/readyz").contains(" 200 ")
    });
    node
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A stream that has begun: its first piece of text is here.
fn begin(address: SocketAddr, tokens: u32) -> BufReader<TcpStream> {
    let body = format!(
        r#"{{"model": "model", "prompt": "The lynx is", "max_tokens": {tokens}, "stream": true, "lynx": {{"ignore_eos": true}}}}"#
    );
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no stream");
    }
    reader
}

fn rest(mut reader: BufReader<TcpStream>) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has said what it had to say.
    drop(reader.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the agent's end; its status and the rest of its log.
fn ended(mut node: Node) -> (Option<i32>, String) {
    let mut log = String::new();
    node.log.read_to_string(&mut log).unwrap();
    let status = node.agent.wait().unwrap();
    (status.code(), log)
}

#[test]
fn sigterm_lets_answers_end_and_sends_new_requests_elsewhere() {
    let node = start("60s");
    let stream = begin(node.http, SHORT);
    signal("-TERM", node.agent.id());
    until("it drains", || get(node.http, "/readyz").contains(" 503 "));
    let mut refused = TcpStream::connect(node.http).unwrap();
    let body = r#"{"model": "model", "prompt": "x"}"#;
    let length = body.len();
    write!(
        refused,
        "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let answer = rest(BufReader::new(refused)).to_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    let answer = rest(stream);
    assert!(answer.contains("[DONE]"), "{answer}");
    let (status, log) = ended(node);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("nothing is in flight"), "{log}");
}

#[test]
fn a_second_signal_ends_at_once_and_says_so() {
    let mut node = start("600s");
    let stream = begin(node.http, LONG);
    signal("-TERM", node.agent.id());
    signal("-TERM", node.agent.id());
    until("it drains", || get(node.http, "/readyz").contains(" 503 "));
    // What came along with the first one was the same order.
    assert!(node.agent.try_wait().unwrap().is_none());
    while node.agent.try_wait().unwrap().is_none() {
        signal("-TERM", node.agent.id());
    }
    let (status, log) = ended(node);
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("a second signal came"), "{log}");
    let answer = rest(stream);
    assert!(!answer.contains("[DONE]"), "{answer}");
    assert!(!answer.contains("lost inside the agent"), "{answer}");
}

#[test]
fn at_the_deadline_what_is_left_is_ended_with_a_reason() {
    let node = start("300ms");
    let stream = begin(node.http, LONG);
    signal("-TERM", node.agent.id());
    let (status, log) = ended(node);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("left=1"), "{log}");
    let answer = rest(stream);
    assert!(
        answer.contains("this agent ends before the answer did"),
        "{answer}"
    );
}

#[test]
fn who_asks_for_a_drain_and_waits_less_long_ends_no_answer() {
    let node = start("60s");
    let stream = begin(node.http, SHORT);
    let told = get(node.drain, "/drain?deadline=1ms");
    assert!(told.contains(r#""drained":false,"in_flight":1"#), "{told}");
    signal("-TERM", node.agent.id());
    let answer = rest(stream);
    assert!(answer.contains("[DONE]"), "{answer}");
    let (status, log) = ended(node);
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("nothing is in flight"), "{log}");
}

#[test]
fn a_drain_that_is_ordered_over_http_says_when_it_is_done() {
    let mut node = start("60s");
    let stream = begin(node.http, SHORT);
    let drain = node.drain;
    let ordered = std::thread::spawn(move || get(drain, "/drain?deadline=50s"));
    let answer = rest(stream);
    assert!(answer.contains("[DONE]"), "{answer}");
    let told = ordered.join().unwrap();
    assert!(told.contains(r#""drained":true"#), "{told}");
    assert!(
        node.agent.try_wait().unwrap().is_none(),
        "it waits for the pod's end"
    );
    signal("-TERM", node.agent.id());
    assert_eq!(ended(node).0, Some(0));
}

#[test]
fn a_misspelt_variable_ends_it_and_one_that_means_nothing_is_told_of() {
    let misspelt = lynx()
        .args(["agent", "config", "--check"])
        .env("LYNX_ENGINE_QEUE", "3")
        .output()
        .unwrap();
    assert_eq!(misspelt.status.code(), Some(64));
    let said = support::text(&misspelt.stderr);
    assert!(said.contains("LYNX_ENGINE_QUEUE"), "{said}");
    let folder = Folder::new();
    let directory = folder.path("");
    let config = folder.write(
        "agent.yaml",
        format!(
            "{{listen: {{http: '127.0.0.1:0', drain: '127.0.0.1:0'}}, \
             engine: {{socket: {directory}/engine.sock, sharedDirectory: {directory}}}}}"
        ),
    );
    let agent = lynx()
        .args(["agent", "--config", &config])
        .env("LYNX_COLOUR", "blue")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = agent.id();
    until("it is told of", || folder_has(&directory, "engine.sock"));
    signal("-TERM", id);
    let said = support::text(&wait_at_most(agent, Duration::from_secs(60)).stderr);
    assert!(said.contains("LYNX_COLOUR"), "{said}");
}

fn folder_has(directory: &str, name: &str) -> bool {
    std::path::Path::new(directory).join(name).exists()
}
