//! Where the corpora begin: one well-formed input or more for each parser, made by the rooms' own writers.
//!
//! Committed as `fuzz/corpus/TARGET/seed-N` by `cargo run -p lynx-parsers --example seeds`; a test holds the files against
//! this module, so that a format that changes takes its seeds along.

mod gguf;
mod messages;

use std::borrow::Cow;
use std::time::Duration;

use lynx_protocol::wire::{Ack, ChunkHeader, Credit, Frame, Heartbeat, Open, Packet};
use lynx_protocol::{Code, Extent, Reason, handshake};
use lynx_transport::{Besides, PeerInfo};
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, TransferId, UnitIndex};

const PROFILE: &str = include_str!("../../../profiles/smollm2-135m-instruct.json");
const EXAMPLES: [&str; 4] = [
    include_str!("../../../examples/embedded.yaml"),
    include_str!("../../../examples/autoscaling.yaml"),
    include_str!("../../../examples/gpu-dra.yaml"),
    include_str!("../../../examples/gpu-device-plugin-rdma.yaml"),
];
const OPERATOR: &str = "watchNamespaces: [default]\nagents:\n  service: lynx\n  port: 7402\nimages:\n  agent: lynx/agent:1\n  engine: lynx/engine:1\n";
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'].strip() + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A chat, and a completion: the first letter says which.
const REQUESTS: [&str; 3] = [
    r#"c{"model": "tiny", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "max_completion_tokens": 5, "temperature": 0.5, "top_p": 0.25, "top_k": 40, "seed": -1, "stop": ["END", "."], "n": 2, "logprobs": true, "top_logprobs": 3, "stream": true, "stream_options": {"include_usage": true}, "lynx": {"method": "lynx-int8", "anchor_bits": 3.5, "ignore_eos": true, "provisional": true, "timeline": true}}"#,
    r#"p{"model": "tiny", "prompt": ["a", [1, 2]], "best_of": 2, "n": 2, "logprobs": 2, "logit_bias": {"17": -100, "4": 1.5}, "presence_penalty": 0.5, "frequency_penalty": -2, "stop": "x"}"#,
    r#"p{"model": "tiny", "prompt": [[1], [2]], "echo": false, "suffix": null, "user": "somebody", "metadata": {"x": "1"}}"#,
];

/// What an engine's own server may get.
const RELAYED: [&str; 3] = [
    r#"{"model": "tiny", "prompt": ["a", [1, 2]], "n": 2, "cache_salt": "mine", "kv_transfer_params": null, "lynx": {"method": "bf16", "anchor_bits": 4, "ignore_eos": true}, "seed": 18446744073709551616}"#,
    r#"{"messages": [{"role": "user", "content": "\ud83d\ude00"}], "tools": [{"function": {"parameters": {"z": 1, "a": 2}}}], "stream": true}"#,
    r#"{"kv_transfer\u005fparams": {"lynx": {"client": "1"}}}"#,
];
/// What it may answer: the first letter is the pieces' length.
const EVENTS: [&str; 2] = [
    "\u{3}data: {\"id\": \"a\", \"kv_transfer_params\": {\"b\": 1}, \"choices\": [{\"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n",
    "@: a comment\r\n\r\ndata: {\"usage\": {\"completion_tokens\": 2}}\r\n\r\nevent: error\ndata: {\"error\": {}}",
];

/// The seeds of a target, in order; none for one whose corpus was found by fuzzing alone.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match target {
        "agent_config" => texts(&[
            &lynx_agent::config::default_file(),
            "role: decode\npeers: [\"prefill:7400\"]\ntransfer:\n  anchor:\n    minBits: 3\n",
        ]),
        "certificates" => certificates(),
        "chat_template" => vec![template(TEMPLATE, "Hello"), template("{{ 1", "x")],
        "deployment" => texts(&EXAMPLES),
        "descriptor" => messages::descriptors(),
        "environment" => texts(&[
            "LYNX_ROLE=decode\nLYNX_PEERS=prefill:7400,[::1]:7401\nLYNX_TRANSFER_DEADLINE=30s\n\nrole: prefill\n",
            "LYNX_HTTP_MAX_BODY=64Ki\nLYNX_TLS_MODE=all\nLYNX_TELEMETRY_SAMPLING=0.5",
        ]),
        "frame" => frames(),
        "gguf" | "tokenizer" => gguf::files(),
        "operator_config" => texts(&[OPERATOR]),
        "openai_request" => texts(&REQUESTS),
        "peer_info" => vec![
            PeerInfo::new("decode-1")
                .with("codec", "1")
                .with("model", "tiny")
                .encode(&Besides::default()),
        ],
        "peer_news" => vec![messages::news()],
        "pool_layout" => messages::layouts(),
        // The profile of a real model is larger than a fuzzer likes: its head says what the fields are.
        "profile_json" => texts(&[&PROFILE[..PROFILE.floor_char_boundary(2048)]]),
        "question" => messages::questions(),
        "receiver" | "sender" => [400, 800, 1200, 1600]
            .map(|len| noise(len, len as u64 / 400))
            .into(),
        "relayed_events" => texts(&EVENTS),
        "relayed_request" => texts(&RELAYED),
        "report" => vec![messages::reports()],
        "session" => messages::sessions(),
        "traceparent" => texts(&[
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nvendor=1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        ]),
        "words" => texts(&["100mbit", "2.5 Gbit/s", "2.125", "1h30m", "500ms"]),
        _ => Vec::new(),
    }
}

/// An authority's certificate and a peer's, with the length of the first.
fn certificates() -> Vec<Vec<u8>> {
    let made = lynx_tls::authority::Authority::new();
    made.into_iter()
        .map(|authority| template(&authority.certificate_pem(), &authority.certificate_pem()))
        .collect()
}

/// A template, and what is said with it.
fn template(source: &str, said: &str) -> Vec<u8> {
    let len = u16::try_from(source.len()).unwrap_or(u16::MAX);
    [&len.to_le_bytes(), source.as_bytes(), said.as_bytes()].concat()
}

/// Bytes that mean long runs of operations: as good as any.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// One of each frame.
fn frames() -> Vec<Vec<u8>> {
    let reason = || Reason::new(Code::Deadline, "too late");
    let said = [
        Frame::Open(Open {
            transfer: TransferId(7),
            remaining: Duration::from_secs(9),
            descriptor: Cow::Borrowed(b"plan"),
        }),
        Frame::Accept(TransferId(7)),
        Frame::Reject(TransferId(7), reason()),
        Frame::Chunk(chunk()),
        Frame::Credit(Credit {
            limit: [Bytes::from_mib(1); 2],
        }),
        Frame::Ack(Ack {
            received: [Bytes::from_kib(9); 2],
            clock: Duration::from_millis(5),
        }),
        Frame::Heartbeat(Heartbeat { stamp: 8, echo: 9 }),
        Frame::Cancel(TransferId(7), reason()),
        Frame::Failed(TransferId(7), reason()),
        Frame::Done(TransferId(7)),
    ];
    let epoch = Epoch(3);
    let packets = said.map(|frame| Packet { epoch, frame });
    let meeting = [
        handshake::hello(epoch, Priority::Residual, 77, b"name=decode-1\n"),
        handshake::accept(epoch, b"name=prefill-1\n"),
        handshake::refuse(epoch, reason()),
    ];
    packets.iter().chain(&meeting).map(encoded).collect()
}

fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).expect("a short frame");
    bytes
}

fn chunk() -> ChunkHeader {
    ChunkHeader {
        epoch: Epoch(3),
        extent: Extent {
            transfer: TransferId(7),
            unit: UnitIndex(1),
            segment: SegmentIndex(2),
            offset: 100,
            len: 50,
        },
        after_pause: true,
        segment_len: 200,
        segment_checksum: 5,
        payload_crc: 6,
    }
}
