//! What lies between the steps of a pass, and the plain steps that only move it.

use half::bf16;

use super::Span;
use super::attend::Attention;
use super::rotary::Rotations;
use crate::config::Config;
use crate::kv::{BLOCK_TOKENS, KvPool};
use crate::model::Model;
use crate::panels::{PANEL, Panels};

/// The memory of a forward pass, kept for the next one.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The residual stream.
    pub(super) x: Panels,
    pub(super) normed: Panels,
    /// Queries, keys and values, one after the other.
    pub(super) qkv: Panels,
    pub(super) attended: Panels,
    pub(super) gated: Panels,
    /// The rows that get logits, and their logits.
    pub(super) last: Panels,
    pub(super) logits: Panels,
    pub(super) rotations: Rotations,
    pub(super) attention: Attention,
    pub(super) queries: Vec<f32>,
}

impl Scratch {
    /// Makes room, and reads the tokens' embeddings.
    pub(super) fn prepare(&mut self, model: &Model, spans: &[Span<'_>]) {
        let config = &model.config;
        let rows = spans.iter().map(|span| span.tokens.len()).sum();
        self.x.resize(rows, config.embedding);
        self.normed.resize(rows, config.embedding);
        self.qkv
            .resize(rows, (config.heads + 2 * config.kv_heads) * config.head_dim);
        self.attended.resize(rows, config.heads * config.head_dim);
        self.gated.resize(rows, config.feed_forward);
        for (row, &token) in spans.iter().flat_map(|span| span.tokens).enumerate() {
            model.embedding.read(token, &mut self.x, row);
        }
        let positions = spans.iter().flat_map(|span| positions(span));
        self.rotations.set(config, positions);
        self.attention.plan(config, spans);
    }

    /// Rounds the new keys and values to BF16 and writes them into their blocks.
    pub(super) fn store_keys_and_values(
        &self,
        config: &Config,
        spans: &[Span<'_>],
        pool: &mut KvPool,
        layer: usize,
    ) {
        let panels = config.head_dim / PANEL;
        let first_key = config.heads * panels;
        let first_value = first_key + config.kv_heads * panels;
        let places = spans.iter().flat_map(|span| {
            positions(span).map(|position| {
                (
                    span.blocks[position / BLOCK_TOKENS],
                    position % BLOCK_TOKENS,
                )
            })
        });
        for (row, (block, token)) in places.enumerate() {
            for head in 0..config.kv_heads {
                let keys = pool.k_mut(layer, block, head);
                for (panel, keys) in keys.chunks_exact_mut(PANEL * BLOCK_TOKENS).enumerate() {
                    let row = self.qkv.row(first_key + head * panels + panel, row);
                    for (keys, &key) in keys.chunks_exact_mut(BLOCK_TOKENS).zip(row) {
                        keys[token] = bf16::from_f32(key).to_bits();
                    }
                }
                let values = pool.v_mut(layer, block, head);
                let values = &mut values[token * config.head_dim..][..config.head_dim];
                for (panel, values) in values.chunks_exact_mut(PANEL).enumerate() {
                    let row = self.qkv.row(first_value + head * panels + panel, row);
                    for (to, &value) in values.iter_mut().zip(row) {
                        *to = bf16::from_f32(value).to_bits();
                    }
                }
            }
        }
    }

    /// Copies the queries into the order of rows, heads and channels.
    pub(super) fn collect_queries(&mut self, config: &Config) {
        self.queries.clear();
        let panels = config.heads * config.head_dim / PANEL;
        for row in 0..self.qkv.rows() {
            for part in self.qkv.whole_row(row).take(panels) {
                self.queries.extend_from_slice(part);
            }
        }
    }
}

fn positions(span: &Span<'_>) -> impl Iterator<Item = usize> + use<> {
    let start = span.start as usize;
    start..start + span.tokens.len()
}
