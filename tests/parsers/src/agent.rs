//! What an agent reads besides frames: its configuration, a peer's descriptor, an engine's layout, a client's trace.

use lynx_agent::coding::{Coding, Descriptor};
use lynx_agent::config::Config;
use lynx_agent::pool::Layout;
use lynx_kernels::KvShape;
use lynx_proto::engine::v1;
use lynx_protocol::limits::MAX_TRANSFER_SEGMENTS;
use prost::Message as _;

use crate::bytes::Bytes;

/// A configuration file: accepted, or refused with at least one sentence.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Err(mistakes) = Config::parse(text, &|_| None) {
        assert!(!mistakes.to_string().is_empty());
    }
}

/// Variables, one a line as `NAME=value`, and after an empty line the file that they lie over: accepted, or refused with a
/// sentence for each mistake.
pub(crate) fn environment(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let (variables, file) = text.split_once("\n\n").unwrap_or((text, ""));
    let lookup = |name: &str| {
        let mut known = variables.lines().filter_map(|line| line.split_once('='));
        known
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.to_owned())
    };
    if let Err(mistakes) = Config::parse(file, &lookup) {
        assert!(!mistakes.to_string().is_empty());
    }
}

/// A transfer's descriptor: what is accepted has a plan within the protocol's bounds.
pub(crate) fn descriptor(bytes: &[u8]) {
    let Some((shape, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(descriptor) = Descriptor::decode(rest) else {
        return;
    };
    let shape = KvShape {
        layers: 1 + usize::from(shape % 4),
        kv_heads: 1 + usize::from(shape / 4 % 4),
        head_dim: 64,
    };
    let Ok(coding) = Coding::new(shape, &descriptor) else {
        return;
    };
    let plan = coding.transfer();
    assert!(plan.units() as usize * plan.segments() <= MAX_TRANSFER_SEGMENTS);
    assert_eq!(coding.units().len(), plan.units() as usize);
    assert!(coding.is_described_by(&coding.descriptor_bytes()));
    assert_eq!(plan.levels(), coding.last_level() + 1);
}

/// An engine's layout: every tile of an accepted one lies within what it says it takes.
pub(crate) fn pool_layout(bytes: &[u8]) {
    let mut head = Bytes(bytes);
    let blocks = 1 + u32::from(head.u16());
    let Ok(message) = v1::Layout::decode(head.0) else {
        return;
    };
    let Ok(layout) = Layout::parse(&message) else {
        return;
    };
    let Ok(all) = layout.bytes(blocks) else {
        return;
    };
    let tile = layout.tile_elements() * 2;
    let shape = layout.shape();
    let tiles = 2 * shape.layers * shape.kv_heads * blocks as usize;
    assert!(tiles.checked_mul(tile).is_some_and(|least| least <= all));
    let one_less = layout.bytes(blocks - 1);
    assert!(one_less.is_ok_and(|less| less <= all));
}

/// A caller's trace context: what is passed on is a context, or nothing.
pub(crate) fn traceparent(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (parent, state) = text.split_once('\n').unwrap_or((&text, ""));
    let (parent, _) = lynx_telemetry::inject(&lynx_telemetry::context_from(parent, state));
    if !parent.is_empty() {
        let (again, _) = lynx_telemetry::inject(&lynx_telemetry::context_from(&parent, ""));
        assert_eq!(again, parent);
    }
}
