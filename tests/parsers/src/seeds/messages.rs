//! Messages of gRPC, as bytes.

use lynx_agent::coding::Descriptor;
use lynx_proto::engine::v1::{self, from_agent, from_engine};
use lynx_proto::operator::v1::{Link, Report};
use lynx_proto::peer::v1::{Identity, Load, Method, PeerNews, TransferRequest};
use prost::Message as _;

/// A descriptor of each method.
pub(super) fn descriptors() -> Vec<Vec<u8>> {
    let methods = [
        Method::Bf16,
        Method::Int8,
        Method::Int4,
        Method::LynxInt8,
        Method::LynxExact,
    ];
    let descriptor = |method: Method| Descriptor {
        method: method.into(),
        prompt_tokens: 600,
        from_token: 64,
        anchor_k_eighths: 24,
        anchor_v_bits: 3,
        profile: "uniform".into(),
    };
    let bytes = |method| [&[5], descriptor(method).encode_to_vec().as_slice()].concat();
    methods.map(bytes).into()
}

/// The layout of a small model with its layers outermost, and with its blocks outermost.
pub(super) fn layouts() -> Vec<Vec<u8>> {
    let tile = 64 * 64 * 2;
    let layout = |block_stride, layer_stride| v1::Layout {
        layers: 2,
        kv_heads: 1,
        head_dim: 64,
        block_tokens: 64,
        block_stride,
        layer_stride,
        head_stride: tile,
        v_offset: tile,
        k_order: v1::Order::ChannelToken.into(),
        v_order: v1::Order::TokenChannel.into(),
        element: v1::ElementType::Bf16.into(),
        rotary: v1::Rotary::HalfSplit.into(),
        tensor_parallel_rank: 0,
        tensor_parallel_size: 1,
    };
    let bytes = |layout: v1::Layout| [&[9, 0], layout.encode_to_vec().as_slice()].concat();
    vec![
        bytes(layout(2 * tile, 100 * tile)),
        bytes(layout(4 * tile, 2 * tile)),
    ]
}

/// Two agents' reports, one after the other.
pub(super) fn reports() -> Vec<u8> {
    let report = |ready| Report {
        ready,
        running: 2,
        drafted_tokens: 10,
        accepted_tokens: 8,
        verified_tokens: 9,
        token_time_ns: 5_000_000,
        transfer_kv_bytes: 1 << 20,
        time_to_anchor_ns: 9_000_000,
        anchor_eighths: 24,
        links: vec![Link {
            peer: "p".into(),
            up: ready,
            transport: "tcp".into(),
            rate_bps: 1_000_000_000,
            round_trip_ns: 300_000,
            error: String::new(),
        }],
        ..Report::default()
    };
    let mut bytes = report(true).encode_length_delimited_to_vec();
    bytes.extend(report(false).encode_length_delimited_to_vec());
    bytes
}

/// A question for the KV of a prompt.
pub(super) fn questions() -> Vec<Vec<u8>> {
    let question = |tokens: u32, profile: &str| TransferRequest {
        caller: Some(Identity {
            name: "decode-1".into(),
            facts: [("model".into(), "tiny".into())].into(),
        }),
        transfer: 7,
        link: "0123456789abcdef0123456789abcdef".into(),
        coding: Some(Descriptor {
            method: Method::LynxExact.into(),
            prompt_tokens: tokens,
            from_token: 64,
            anchor_k_eighths: 24,
            anchor_v_bits: 3,
            profile: profile.into(),
        }),
        tokens: vec![1; tokens as usize],
        sampling: Some(v1::Sampling::default()),
        time_left_ns: 1_000_000_000,
        timeline: true,
        checksum: 0,
    };
    vec![
        question(100, "uniform").encode_to_vec(),
        question(300, "").encode_to_vec(),
    ]
}

/// Two peers' news, one after the other.
pub(super) fn news() -> Vec<u8> {
    let news = |blocks: std::ops::Range<u64>, queued_tokens| PeerNews {
        reset: true,
        added: blocks.collect(),
        removed: vec![2],
        load: Some(Load {
            queued_tokens,
            token_time_ns: 100_000,
            pending_bytes: 1 << 20,
            ..Load::default()
        }),
    };
    let mut bytes = vec![200, 0, 1, 2, 3, 4];
    bytes.extend(news(1..5, 100).encode_length_delimited_to_vec());
    bytes.extend(news(1..2, u64::MAX).encode_length_delimited_to_vec());
    bytes
}

/// One side's word in a session.
enum Word {
    Engine(from_engine::Kind),
    Agent(from_agent::Kind),
}

/// A request that is answered, and a prompt that is computed.
pub(super) fn sessions() -> Vec<Vec<u8>> {
    use from_agent::Kind as Agent;
    use from_engine::Kind as Engine;
    let request = 1;
    let decode = [
        Word::Agent(Agent::Submit(v1::Submit {
            request,
            transfer: true,
            ..v1::Submit::default()
        })),
        Word::Engine(Engine::Expect(v1::Expect {
            request,
            tokens: vec![1; 100],
            blocks: vec![3, 5],
            ..v1::Expect::default()
        })),
        Word::Agent(Agent::AnchorReady(v1::AnchorReady {
            request,
            ..v1::AnchorReady::default()
        })),
        Word::Agent(Agent::WantGrant(v1::WantGrant { request })),
        Word::Engine(Engine::WriteGrant(v1::WriteGrant { request })),
        Word::Agent(Agent::FullReady(v1::FullReady {
            request,
            exact: true,
        })),
        Word::Engine(Engine::Finished(v1::Finished {
            request,
            ..v1::Finished::default()
        })),
    ];
    let published = |layer| {
        Word::Engine(Engine::Published(v1::Published {
            request,
            layer,
            first_token: 64,
            end_token: 100,
            ..v1::Published::default()
        }))
    };
    let prefill = [
        Word::Agent(Agent::Prefill(v1::Prefill {
            request,
            tokens: vec![1; 100],
            ..v1::Prefill::default()
        })),
        Word::Engine(Engine::PrefillStarted(v1::PrefillStarted {
            request,
            blocks: vec![3, 5],
            cached_tokens: 64,
            start_unix_ns: 0,
        })),
        published(0),
        published(1),
        Word::Engine(Engine::PrefillDone(v1::PrefillDone {
            request,
            ..v1::PrefillDone::default()
        })),
        Word::Agent(Agent::Release(v1::Release { request })),
        Word::Engine(Engine::Finished(v1::Finished {
            request,
            ..v1::Finished::default()
        })),
    ];
    vec![conversation(&decode), conversation(&prefill)]
}

fn conversation(words: &[Word]) -> Vec<u8> {
    let mut bytes = vec![0];
    for word in words {
        match word {
            Word::Engine(kind) => {
                let kind = Some(kind.clone());
                bytes.push(0);
                bytes.extend(v1::FromEngine { kind }.encode_length_delimited_to_vec());
            }
            Word::Agent(kind) => {
                let kind = Some(kind.clone());
                bytes.push(1);
                bytes.extend(v1::FromAgent { kind }.encode_length_delimited_to_vec());
            }
        }
    }
    bytes
}
