//! What an engine says about itself.

use lynx_engine::{BLOCK_TOKENS, Engine};
use lynx_proto::engine::v1 as api;

use crate::opened::Opened;
use crate::{Options, Role};

/// The engine API's version.
const API_VERSION: u32 = 1;

/// The first message.
pub(crate) fn message(options: &Options, opened: &Opened, engine: &Engine) -> api::Attach {
    let name = &opened.model.config().name;
    api::Attach {
        api_version: API_VERSION,
        engine: format!("lynx embedded {}", env!("CARGO_PKG_VERSION")),
        role: match options.role {
            Role::Prefill => api::Role::Prefill,
            Role::Decode => api::Role::Decode,
        }
        .into(),
        model: options.served_name.as_ref().unwrap_or(name).clone(),
        model_fingerprint: opened.model.fingerprint().0.to_vec(),
        layout: Some(layout(engine)),
        pool: Some(api::Pool {
            file: options.pool_file.clone(),
            blocks: options.kv_blocks,
            gpu: None,
            staging: None,
        }),
        // Neither role has a server of its own.
        generates: true,
        weights: name.clone(),
        context_tokens: number(engine.longest().tokens),
    }
}

fn layout(engine: &Engine) -> api::Layout {
    let (config, strides) = (engine.config(), engine.pool().layout());
    api::Layout {
        layers: number(config.layers),
        kv_heads: number(config.kv_heads),
        head_dim: number(config.head_dim),
        block_tokens: number(BLOCK_TOKENS),
        block_stride: strides.block,
        layer_stride: strides.layer,
        head_stride: strides.head,
        v_offset: strides.values,
        k_order: api::Order::ChannelToken.into(),
        v_order: api::Order::TokenChannel.into(),
        element: api::ElementType::Bf16.into(),
        rotary: api::Rotary::HalfSplit.into(),
        tensor_parallel_rank: 0,
        tensor_parallel_size: 1,
    }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
