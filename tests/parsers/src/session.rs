//! What an engine says once it is attached.

use std::sync::{Arc, OnceLock};

use lynx_agent::pool::{Access, Layout, Pool};
use lynx_agent::session::{Message, Trial};
use lynx_kernels::Kind;
use lynx_proto::engine::v1::{self, FromAgent, FromEngine};
use prost::Message as _;

use crate::bytes::Bytes;

/// Blocks of the pool.
const BLOCKS: u32 = 8;
/// The longest prompt that the engine said it takes.
const CONTEXT: u32 = 512;
/// Messages of one session.
const MOST: usize = 64;

/// Messages of both sides, each with its length and a byte that says whose: what the rules let through is usable, and what
/// they don't is answered with a sentence.
pub(crate) fn session(bytes: &[u8]) {
    let mut head = Bytes(bytes);
    let own_front = head.flag();
    let mut rules = Trial::new(pool(), CONTEXT, own_front);
    // Held as a role holds them: so blocks stay taken.
    let mut held = Vec::new();
    for _ in 0..MOST {
        if head.is_empty() {
            break;
        }
        if head.flag() {
            let Ok(said) = FromAgent::decode_length_delimited(&mut head.0) else {
                break;
            };
            said.kind.iter().for_each(|kind| rules.said(kind));
            continue;
        }
        let Ok(FromEngine { kind: Some(kind) }) = FromEngine::decode_length_delimited(&mut head.0)
        else {
            break;
        };
        match rules.heard(kind) {
            Ok(Some(message)) => held.push(usable(message)),
            Ok(None) => {}
            Err(why) => assert!(!why.is_empty()),
        }
        if held.len() > 4 {
            held.remove(0);
        }
    }
}

/// Reaches what a message gives.
fn usable(message: Message) -> Message {
    match message {
        Message::Expect(mut expected) => {
            let end = u32::try_from(expected.tokens.len()).expect("a prompt that was taken");
            assert!(end <= CONTEXT);
            let tokens = expected.from_token..end;
            assert!(expected.blocks.sink(0, Kind::V, tokens).is_ok());
            Message::Expect(expected)
        }
        Message::PrefillStarted {
            request,
            blocks,
            cached_tokens,
            start_unix_ns,
        } => {
            let cached = blocks.source(0, Kind::K, 0..cached_tokens);
            assert_eq!(cached.is_ok(), cached_tokens > 0);
            Message::PrefillStarted {
                request,
                blocks,
                cached_tokens,
                start_unix_ns,
            }
        }
        other => other,
    }
}

/// One pool for all sessions: each gives back what it has claimed.
fn pool() -> &'static Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| {
        let tile = 64 * 8 * 2;
        let layout = v1::Layout {
            layers: 2,
            kv_heads: 1,
            head_dim: 8,
            block_tokens: 64,
            block_stride: 4 * tile,
            layer_stride: 2 * tile,
            head_stride: 2 * tile,
            v_offset: tile,
            k_order: v1::Order::ChannelToken.into(),
            v_order: v1::Order::TokenChannel.into(),
            element: v1::ElementType::Bf16.into(),
            rotary: v1::Rotary::HalfSplit.into(),
            tensor_parallel_rank: 0,
            tensor_parallel_size: 1,
        };
        let layout = Layout::parse(&layout).expect("a layout of this version");
        let directory = tempfile::tempdir().expect("a directory");
        let pool = v1::Pool {
            file: "kv".to_owned(),
            blocks: BLOCKS,
            gpu: None,
            staging: None,
        };
        let bytes = layout.bytes(BLOCKS).expect("a small pool");
        std::fs::write(directory.path().join(&pool.file), vec![0; bytes]).expect("a file");
        // Mapped, it needs no name any more.
        let pool = Pool::open(directory.path(), &pool, layout, Access::Write);
        Arc::new(pool.expect("a pool"))
    })
}
