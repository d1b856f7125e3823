//! The two ends that `make bench-peers` compares with others: as processes, on the loopback.
#![cfg(test)]

mod support;

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};
use support::lynx;

/// One end, which ends with its standard input.
struct End {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl End {
    fn new(arguments: &[&str]) -> Self {
        let mut child = lynx()
            .args(["bench", "peer"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            orders: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    fn say(&mut self, order: &Value) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.answers.next().unwrap().unwrap()).unwrap()
    }

    fn finish(mut self) {
        drop(self.orders.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn two_ends_move_bulk_and_anchor_and_name_the_same_checksums() {
    let mut receiver = End::new(&["--receive", "127.0.0.1:0"]);
    let mut sender = End::new(&["--send"]);
    sender.say(&receiver.hear()["hello"]);
    assert_eq!(sender.hear(), json!({ "ready": true }));
    // The second order is of the same length, and is no echo of the first.
    let mut seen = Vec::new();
    for seed in [1, 2] {
        sender
            .say(&json!({ "bulk": 3_000_000, "anchor": 300_000, "after_s": 0.001, "seed": seed }));
        let sent = sender.hear();
        for took in ["bulk_s", "anchor_s", "cpu_s"] {
            assert!(sent[took].as_f64().unwrap() > 0.0, "{took} of {sent}");
        }
        receiver.say(&json!({ "areas": [] }));
        let mut crcs = receiver.hear()["crcs"].as_array().unwrap().clone();
        for crc in [&sent["bulk_crc"], &sent["anchor_crc"]] {
            let at = crcs.iter().position(|received| received == crc).unwrap();
            seen.push(crcs.swap_remove(at));
        }
        assert!(crcs.is_empty(), "more came than was sent");
    }
    seen.sort_by_key(Value::as_u64);
    seen.dedup();
    assert_eq!(seen.len(), 4);
    sender.finish();
    receiver.finish();
}
