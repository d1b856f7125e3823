//! A small engine for tests, and its pool.

pub(crate) mod agents;
pub(crate) mod by_engine;
/// Runs a test with the fake driver.
#[expect(dead_code, reason = "it is the loader's, who needs more of it")]
#[path = "../../../kernels/cuda/loader/tests/loader/fake.rs"]
pub(crate) mod driver;
mod engine;
pub(crate) mod gpu;
pub(crate) mod prompt;
mod server;

use std::path::Path;
use std::sync::Arc;

use lynx_kernels::{Kind, TileSource as _};
use lynx_proto::engine::v1;

pub(crate) use self::engine::{FakeEngine, soon};
pub(crate) use self::server::{FakeServer, Question};
use crate::pool::{Access, Layout, Pool, Source};

/// What an engine with a pool of `blocks` blocks says of itself: 2 layers, 2 heads, 64 channels.
pub(crate) fn attach(role: v1::Role, blocks: u32) -> v1::Attach {
    let tile = 64 * 64 * 2;
    v1::Attach {
        api_version: 1,
        engine: "test engine 1".to_owned(),
        role: role.into(),
        model: "tiny".to_owned(),
        model_fingerprint: vec![7; 32],
        layout: Some(v1::Layout {
            layers: 2,
            kv_heads: 2,
            head_dim: 64,
            block_tokens: 64,
            block_stride: 8 * tile,
            layer_stride: 4 * tile,
            head_stride: 2 * tile,
            v_offset: tile,
            k_order: v1::Order::ChannelToken.into(),
            v_order: v1::Order::TokenChannel.into(),
            element: v1::ElementType::Bf16.into(),
            rotary: v1::Rotary::HalfSplit.into(),
            tensor_parallel_rank: 0,
            tensor_parallel_size: 1,
        }),
        pool: Some(v1::Pool {
            file: "pool".to_owned(),
            blocks,
            gpu: None,
            staging: None,
        }),
        generates: true,
        context_tokens: 4096,
        weights: String::new(),
    }
}

/// Makes the pool's file in `directory`, full of what KV looks like: values of all signs around 1, and some of any bits.
pub(crate) fn make_pool(directory: &Path, attach: &v1::Attach, seed: u64) {
    let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
    let pool = attach.pool.as_ref().unwrap();
    let mut random = Random(seed);
    let elements = layout.bytes(pool.blocks).unwrap() / 2;
    let noise = std::iter::repeat_with(|| random.bf16()).take(elements);
    let bytes: Vec<u8> = noise.flat_map(u16::to_ne_bytes).collect();
    std::fs::write(directory.join(&pool.file), bytes).unwrap();
}

/// Maps what [`make_pool`] made.
pub(crate) fn open_pool(directory: &Path, attach: &v1::Attach, access: Access) -> Arc<Pool> {
    let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
    let pool = attach.pool.as_ref().unwrap();
    Arc::new(Pool::open(directory, pool, layout, access).unwrap())
}

/// The values of the first `tokens` tokens of a block, in an order of their own.
pub(crate) fn values(source: &Source<'_>, kind: Kind, block: usize, tokens: usize) -> Vec<u16> {
    let mut values = Vec::new();
    for head in 0..2 {
        let rows = source.rows(head, block);
        match kind {
            Kind::K => {
                for channel in rows.data.chunks(rows.stride) {
                    values.extend_from_slice(&channel[..tokens]);
                }
            }
            Kind::V => values.extend_from_slice(&rows.data[..tokens * rows.stride]),
        }
    }
    values
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap()
    }

    fn bf16(&mut self) -> u16 {
        let bits = self.next();
        let [low, high, sign, exponent, kind, ..] = bits.to_le_bytes();
        if kind == 0 {
            return u16::from_le_bytes([low, high]);
        }
        let exponent = 120 + u16::from(exponent % 10);
        u16::from(sign & 1) << 15 | exponent << 7 | u16::from(low & 0x7f)
    }
}
