//! Nodes whose peers or parents say what they shouldn't, or fall silent at a bad moment.
#![cfg(test)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use support::{lynx, model};

const PATIENCE: Duration = Duration::from_secs(60);

/// A node's process; it ends with its input.
struct Node {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Node {
    fn start(arguments: &[&str]) -> (Self, Value) {
        let mut child = lynx()
            .arg("node")
            .args(arguments)
            .args(["--max-tokens", "600", "--model"])
            .arg(model())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut node = Self {
            child,
            input,
            output,
        };
        let ready = node.hear();
        assert_eq!(ready["report"], "ready", "{ready}");
        (node, ready)
    }

    fn tell(&mut self, command: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The next report that is not an event.
    fn outcome(&mut self) -> Value {
        loop {
            let report = self.hear();
            if report["report"] != "happened" {
                return report;
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

fn address(ready: &Value, which: &str) -> String {
    ready[which].as_str().unwrap().to_owned()
}

fn spec(run: u64, prompt: &[u32]) -> Value {
    json!({
        "run": run, "method": "lynx-exact", "scenario": "cold", "prompt": prompt, "max_tokens": 4,
        "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 0}, "ignore_eos": true, "anchor_eighths": 32,
    })
}

fn run(run: u64) -> Value {
    let mut command = spec(run, &[5, 6, 7, 8]);
    command["command"] = "run".into();
    command
}

/// All that the prefill node answers to a line, until it closes the connection.
fn answers_to(control: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(control).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(stream, "{line}").unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

#[test]
fn a_question_without_sense_is_answered_and_its_connection_closed() {
    let (_prefill, ready) = Node::start(&["prefill"]);
    let control = address(&ready, "control");
    for line in ["", "{}", "[[[[", "\u{0}"] {
        assert!(answers_to(&control, line).contains("can't be read"));
    }
}

#[test]
fn a_plan_for_more_tokens_than_the_prompt_has_is_not_made() {
    let (_prefill, ready) = Node::start(&["prefill"]);
    let (mut decode, _) = Node::start(&[
        "decode",
        "--data",
        &address(&ready, "data"),
        "--control",
        &address(&ready, "control"),
    ]);
    let ask = json!({
        "spec": spec(1, &[5, 6]), "node": format!("the decode node (process {})", decode.child.id()), "start_ns": 0,
        "descriptor": {
            "run": 1, "method": "lynx-exact", "prompt_tokens": u32::MAX, "from_token": 0,
            "anchor_k_eighths": 32, "anchor_v": 4, "profile": "",
        },
    });
    let answers = answers_to(&address(&ready, "control"), &ask.to_string());
    assert!(answers.contains("another prompt"), "{answers}");
    decode.tell(&run(2));
    assert_eq!(decode.outcome()["report"], "finished");
    decode.tell(&run(2));
    let again = decode.outcome();
    assert_eq!(again["report"], "failed", "a number used twice: {again}");
}

/// A relay to `target` that passes on both handshakes and then, once told, nothing more towards the client; it closes all
/// connections when told again.
fn relay(target: String, orders: Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (open, opened) = channel::<TcpStream>();
    let order = silent.clone();
    std::thread::spawn(move || {
        orders.recv().unwrap();
        order.store(true, std::sync::atomic::Ordering::SeqCst);
        orders.recv().unwrap();
        for stream in opened.try_iter() {
            stream.shutdown(Shutdown::Both).ok();
        }
    });
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&target).unwrap();
            open.send(client.try_clone().unwrap()).ok();
            open.send(server.try_clone().unwrap()).ok();
            let (mut up, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up, &mut up_to));
            let (mut from, mut to, silent) = (server, client, silent.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = from.read(&mut buffer) {
                    if !silent.load(std::sync::atomic::Ordering::SeqCst) {
                        to.write_all(&buffer[..read]).ok();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_link_that_is_lost_before_the_offer_costs_time_and_not_the_request() {
    let (_prefill, ready) = Node::start(&["prefill"]);
    let (order, orders) = channel();
    let data = relay(address(&ready, "data"), orders);
    let control = address(&ready, "control");
    let (mut decode, _) = Node::start(&["decode", "--data", &data, "--control", &control]);
    order.send(()).unwrap();
    decode.tell(&run(1));
    // The first token comes on the other connection: by then the offer has been said, and not been heard.
    while decode.hear()["event"]["event"] != "token" {}
    order.send(()).unwrap();
    assert_eq!(decode.outcome()["report"], "finished");
}

#[test]
fn a_prompt_that_the_prefill_node_forgets_in_the_middle_is_computed_by_the_decode_node() {
    let (mut prefill, ready) = Node::start(&["prefill"]);
    let (data, control) = (address(&ready, "data"), address(&ready, "control"));
    let (mut decode, _) = Node::start(&["decode", "--data", &data, "--control", &control]);
    let mut command = spec(1, &[9; 500]);
    command["command"] = "run".into();
    decode.tell(&command);
    // The first layer of the first of two chunks.
    while decode.hear()["event"]["event"] != "prefill-layer" {}
    prefill.tell(&json!({"command": "forget"}));
    assert_eq!(prefill.hear()["report"], "forgotten");
    assert_eq!(decode.outcome()["report"], "finished");
}
