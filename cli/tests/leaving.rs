//! Clients that go away: wherever their request is, it ends there and at every node, and leaves nothing behind.
//!
//! Real processes. What a test waits for is what it can see: a word of the stream, or a metric.
#![cfg(test)]

mod support;

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lynx::cluster::Cluster;
use lynx_agent::config::Role::{self, Decode, Prefill};
use serde_json::{Value, json};
use tokio::time::Instant;

/// At the link's rate its KV takes about two seconds: time to leave in the middle.
const PROMPT_TOKENS: usize = 330;
/// Longer than any test waits.
const ANSWER: u32 = 1000;
/// Tokens of KV at each engine: three choices of one prompt have room, to their ends.
const POOL: u32 = 3600;
/// A prompt that has no room beside them.
const LONG_PROMPT: usize = 3300;
/// Until everything that a client left behind must be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster, a prompt, and a runtime to ask with.
struct World {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
    decode: SocketAddr,
    prompt: Vec<u32>,
}

/// What must be as before when a client has gone: requests, transfers, KV under way, what is taken of each pool.
type Levels = [(&'static str, f64); LEVELS.len()];

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    aborted: f64,
    /// Transfers at the prefill agent: begun, cancelled, complete, failed.
    transfers: [f64; 4],
}

const LEVELS: [(Role, &str); 12] = [
    (Decode, "lynx_in_flight"),
    (Decode, "lynx_running_requests"),
    (Decode, "lynx_waiting_requests"),
    (Decode, "lynx_pending_kv_bytes"),
    (Decode, "lynx_memory_bytes{pool=\"merge\"}"),
    (Decode, "lynx_memory_bytes{pool=\"receive\"}"),
    (Decode, "lynx_engine_free_blocks"),
    (Prefill, "lynx_in_flight"),
    (Prefill, "lynx_running_requests"),
    (Prefill, "lynx_pending_kv_bytes"),
    (Prefill, "lynx_memory_bytes{pool=\"split\"}"),
    (Prefill, "lynx_engine_free_blocks"),
];

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = support::options(20, 1, POOL);
        let prompt = support::prose()[..PROMPT_TOKENS].to_vec();
        let cluster = runtime.block_on(Cluster::start(&options)).unwrap();
        let decode = cluster.addresses().unwrap()[1].parse().unwrap();
        Self {
            runtime,
            cluster,
            decode,
            prompt,
        }
    }

    fn metric(&self, role: Role, series: &str) -> f64 {
        let asked = self.cluster.metric(role, 0, series);
        self.runtime.block_on(asked).unwrap()
    }

    fn levels(&self) -> Levels {
        LEVELS.map(|(role, series)| (series, self.metric(role, series)))
    }

    fn counts(&self) -> Counts {
        let transfers = |how| {
            self.metric(
                Prefill,
                &format!("lynx_transfers_total{{outcome=\"{how}\"}}"),
            )
        };
        Counts {
            aborted: self.metric(Decode, "lynx_requests_total{outcome=\"aborted\"}"),
            transfers: [
                self.metric(Prefill, "lynx_transfers_begun_total"),
                transfers("cancelled"),
                transfers("complete"),
                transfers("failed"),
            ],
        }
    }

    /// Forgets the prompt at the decode node: its KV comes over the link, and the prefill node has it at once.
    fn forget(&mut self) {
        let prompt = self.prompt.clone();
        let prepared = self.cluster.prepare(lynx::run::Scenario::Warm, &prompt);
        self.runtime.block_on(prepared).unwrap();
    }

    /// Sends a request, without waiting for its answer.
    fn ask(&self, more: &Value) -> BufReader<TcpStream> {
        let mut body = json!({
            "model": "model", "prompt": self.prompt, "max_tokens": ANSWER, "temperature": 0,
            "lynx": {"method": "lynx-exact", "anchor_bits": 4, "ignore_eos": true},
        });
        let fields = more.as_object().unwrap().clone();
        if fields.contains_key("stream") {
            body["lynx"]["timeline"] = json!(true);
            body["lynx"]["provisional"] = json!(true);
        }
        body.as_object_mut().unwrap().extend(fields);
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.decode).unwrap();
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        BufReader::new(stream)
    }

    /// Waits until a metric has passed what it was.
    fn until_above(&self, role: Role, series: &str, before: f64) {
        support::until(series, || self.metric(role, series) > before);
    }

    /// Waits until everything is as `before`, and tells how long that took.
    fn quiet(&self, before: &Levels, what: &str) -> Duration {
        let begun = Instant::now();
        loop {
            let now = self.levels();
            if now == *before {
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{what}: {now:?}\nbefore: {before:?}"
            );
        }
    }
}

/// Reads until a line has this word in it.
fn read_until(stream: &mut BufReader<TcpStream>, word: &str) {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        let read = stream.read_line(&mut line).unwrap();
        assert!(read > 0, "the answer ended before {word}");
    }
}

/// Reads until each of three choices has said something.
fn every_choice(stream: &mut BufReader<TcpStream>) {
    for choice in 0..3 {
        read_until(stream, &format!("\"index\":{choice},"));
    }
}

/// What must have happened to the transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Cancelled,
    Complete,
}

/// Where a request is when its client goes, by a word of the stream. Drafting first: who has been told of many wrong or slow
/// drafts makes none.
const STREAMED: [(&str, Fate); 5] = [
    ("\"draft\"", Fate::Cancelled),
    ("level-complete", Fate::Cancelled),
    ("anchor-ready", Fate::Cancelled),
    ("full-ready", Fate::Complete),
    ("\"decode\"", Fate::Complete),
];

/// The same where nothing is told before the end: by a metric of an agent.
const UNSTREAMED: [(Role, &str, Fate); 4] = [
    (Prefill, "lynx_transfers_begun_total", Fate::Cancelled),
    (Decode, "lynx_time_to_anchor_seconds_count", Fate::Cancelled),
    (
        Decode,
        "lynx_time_to_first_token_seconds_count{tokens=\"provisional\"}",
        Fate::Cancelled,
    ),
    (Decode, "lynx_time_to_full_seconds_count", Fate::Complete),
];

/// Has a client leave, and looks at what is left.
fn leave(world: &mut World, what: &str, fate: Fate, go: impl FnOnce(&World)) {
    world.forget();
    support::until("nothing is under way", || {
        world.metric(Prefill, "lynx_in_flight") == 0.0
    });
    let (levels, before) = (settled(world), world.counts());
    go(world);
    let took = world.quiet(&levels, what);
    let after = world.counts();
    assert_eq!(after.aborted, before.aborted + 1.0, "{what}");
    let changes: Vec<f64> = after
        .transfers
        .iter()
        .zip(before.transfers)
        .map(|(now, then)| now - then)
        .collect();
    let expected = match fate {
        Fate::Cancelled => [1.0, 1.0, 0.0, 0.0],
        Fate::Complete => [1.0, 0.0, 1.0, 0.0],
    };
    assert_eq!(
        changes, expected,
        "{what}: begun, cancelled, complete, failed"
    );
    println!("{what}: quiet after {:.2} s", took.as_secs_f64());
}

/// The levels at rest, seen at once: engines report once a second, and a report may come between two looks.
fn settled(world: &World) -> Levels {
    let all = f64::from(POOL.div_ceil(64) + 2);
    let is_rest = |(series, level): &(&str, f64)| match *series {
        "lynx_engine_free_blocks" => *level == all,
        "lynx_running_requests" => *level == 0.0,
        _ => true,
    };
    let rest = Cell::new(None);
    support::until(
        "the engines report that all blocks are free and nothing runs",
        || {
            let levels = world.levels();
            let is_resting = levels.iter().all(is_rest);
            rest.set(Some(levels));
            is_resting
        },
    );
    rest.take().unwrap()
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind_in_any_phase() {
    let mut world = World::new();
    for ((word, fate), n) in STREAMED
        .iter()
        .flat_map(|phase| [1, 3].map(|n| (*phase, n)))
    {
        let what = format!("streamed, {n} choices, {word}");
        leave(&mut world, &what, fate, |world| {
            read_until(&mut world.ask(&json!({"stream": true, "n": n})), word);
        });
    }
    for ((role, series, fate), n) in UNSTREAMED
        .iter()
        .flat_map(|phase| [1, 3].map(|n| (*phase, n)))
    {
        let what = format!("not streamed, {n} choices, {series}");
        leave(&mut world, &what, fate, |world| {
            let before = world.metric(role, series);
            let stream = world.ask(&json!({"n": n}));
            world.until_above(role, series, before);
            drop(stream);
        });
    }
    // All three choices at once, each decoding.
    leave(
        &mut world,
        "streamed, every choice decodes",
        Fate::Complete,
        |world| {
            let mut stream = world.ask(&json!({"stream": true, "n": 3, "temperature": 1, "lynx": {"method": "bf16", "ignore_eos": true}}));
            for choice in 0..3 {
                read_until(&mut stream, &format!("\"index\":{choice},"));
            }
        },
    );
}

#[test]
fn a_client_that_goes_away_in_the_queue_was_never_there() {
    let mut world = World::new();
    world.forget();
    let levels = settled(&world);
    let mut first =
        world.ask(&json!({"stream": true, "n": 3, "lynx": {"method": "bf16", "ignore_eos": true}}));
    every_choice(&mut first);
    let long = vec![7; LONG_PROMPT];
    for more in [
        json!({"stream": true, "n": 3, "prompt": long}),
        json!({"n": 3, "prompt": long}),
        json!({"n": 1, "prompt": long}),
    ] {
        let before = world.counts();
        let second = world.ask(&more);
        support::until("it waits", || {
            world.metric(Decode, "lynx_waiting_requests") > 0.0
        });
        drop(second);
        support::until("it is gone", || {
            world.metric(Decode, "lynx_waiting_requests") == 0.0
                && world.counts().aborted > before.aborted
        });
        let choices = &more["n"];
        assert_eq!(world.counts().transfers, before.transfers, "{choices}");
    }
    // The first one goes on as if nothing had been.
    every_choice(&mut first);
    drop(first);
    world.quiet(&levels, "the first one");
}

#[test]
fn an_engine_that_dies_under_requests_gives_each_a_clear_error_at_once() {
    let mut world = World::new();
    world.forget();
    let mut streamed = world.ask(&json!({"stream": true}));
    read_until(&mut streamed, "\"draft\"");
    let mut whole = world.ask(&json!({"prompt": vec![9; 200]}));
    world.until_above(Decode, "lynx_in_flight", 1.0);
    let processes = world.cluster.processes();
    let engine = processes
        .iter()
        .find(|(name, _)| name == "the decode node's engine");
    let begun = Instant::now();
    support::signal("-KILL", engine.unwrap().1);
    let mut rest = String::new();
    read_until(&mut streamed, "event: error");
    streamed.read_line(&mut rest).unwrap();
    assert!(
        rest.contains("the engine is gone: try again") && rest.contains("service_unavailable"),
        "{rest}"
    );
    let mut end = String::new();
    read_until(&mut whole, "HTTP/1.1 503");
    read_until(&mut whole, "retry-after: 1");
    read_until(&mut whole, "the engine is gone: try again");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    drop(streamed.take(4096).read_to_string(&mut end));
    assert!(!end.contains("[DONE]"), "{end}");
    // Whoever asks now is told the same, and where nobody is, nothing runs on at the other node.
    read_until(&mut world.ask(&json!({})), "HTTP/1.1 503");
    support::until("nothing is left", || {
        [Decode, Prefill]
            .iter()
            .all(|role| world.metric(*role, "lynx_in_flight") == 0.0)
    });
}
