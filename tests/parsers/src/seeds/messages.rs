//! Messages of gRPC, as bytes.

use lynx_agent::coding::Descriptor;
use lynx_proto::engine::v1;
use lynx_proto::operator::v1::{Link, Report};
use lynx_proto::peer::v1::Method;
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
