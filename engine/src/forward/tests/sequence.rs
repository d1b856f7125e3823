//! One sequence with a pool of its own.

use crate::config::Config;
use crate::forward::{Logits, LogitsFor, Span};
use crate::kv::{BLOCK_TOKENS, BlockId, KvPool};
use crate::{Model, TokenId, Workers};

pub(super) struct Sequence<'a> {
    model: &'a Model,
    pool: KvPool,
    blocks: Vec<BlockId>,
    length: usize,
}

impl<'a> Sequence<'a> {
    pub(super) fn new(model: &'a Model, blocks: u32) -> Self {
        let mut pool = KvPool::new(model.config(), blocks as usize);
        // What an earlier sequence, or half of a transfer, has left in a block must not matter: here NaNs.
        for block in (0..blocks).map(BlockId) {
            for layer in 0..model.config().layers {
                for head in 0..model.config().kv_heads {
                    pool.k_mut(layer, block, head).fill(0x7fff);
                    pool.v_mut(layer, block, head).fill(0x7fff);
                }
            }
        }
        Self {
            model,
            pool,
            blocks: (0..blocks).rev().map(BlockId).collect(),
            length: 0,
        }
    }

    /// Continues the sequence and returns a row of logits per token.
    pub(super) fn feed(&mut self, workers: &Workers, tokens: &[TokenId]) -> Vec<Vec<f32>> {
        self.forward(workers, tokens, LogitsFor::All)
    }

    /// Continues the sequence and returns the last row of logits.
    pub(super) fn feed_last(&mut self, workers: &Workers, tokens: &[TokenId]) -> Vec<Vec<f32>> {
        self.forward(workers, tokens, LogitsFor::Last)
    }

    fn forward(
        &mut self,
        workers: &Workers,
        tokens: &[TokenId],
        wanted: LogitsFor,
    ) -> Vec<Vec<f32>> {
        let mut logits = Logits::default();
        if tokens.is_empty() {
            return Vec::new();
        }
        let span = Span {
            tokens,
            start: u32::try_from(self.length).unwrap(),
            blocks: &self.blocks,
            logits: wanted,
        };
        self.model
            .forward(workers, &mut self.pool, &[span], &mut (), &mut logits)
            .unwrap();
        self.length += tokens.len();
        assert_eq!(logits.rows(), span.logit_rows());
        (0..logits.rows())
            .map(|row| logits.row(row).to_vec())
            .collect()
    }

    /// The bits of all keys and values.
    pub(super) fn cache(&self) -> Vec<u16> {
        cache(&self.pool, &self.blocks, self.length, self.model.config())
    }
}

/// The bits of a sequence's keys and values, token by token.
pub(super) fn cache(pool: &KvPool, blocks: &[BlockId], length: usize, config: &Config) -> Vec<u16> {
    let mut bits = Vec::new();
    for position in 0..length {
        let (block, token) = (blocks[position / BLOCK_TOKENS], position % BLOCK_TOKENS);
        for layer in 0..config.layers {
            for head in 0..config.kv_heads {
                bits.extend(
                    pool.k(layer, block, head)
                        .iter()
                        .skip(token)
                        .step_by(BLOCK_TOKENS),
                );
                bits.extend(
                    &pool.v(layer, block, head)[token * config.head_dim..][..config.head_dim],
                );
            }
        }
    }
    bits
}

/// Compares rows bit by bit; a failure names the row instead of printing thousands of numbers.
pub(super) fn assert_same(expected: &[Vec<f32>], found: &[Vec<f32>], what: &str) {
    assert_eq!(expected.len(), found.len(), "{what}: rows");
    for (row, (expected, found)) in expected.iter().zip(found).enumerate() {
        let differ = expected
            .iter()
            .zip(found)
            .filter(|(a, b)| a.to_bits() != b.to_bits())
            .count();
        assert_eq!(differ, 0, "{what}: row {row}, numbers that differ");
        assert!(
            found.iter().all(|number| number.is_finite()),
            "{what}: row {row} is not finite"
        );
    }
}
