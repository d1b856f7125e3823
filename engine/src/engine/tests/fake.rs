//! A model that is a hash function, but reads and writes a real pool: a KV row depends on all rows before it, a sample on
//! all rows up to it, so that one wrong row shows.

use super::*;
use crate::{ForwardError, LogitsFor, Observer, Span};

pub(super) const VOCABULARY: u32 = 64;
const LAYERS: usize = 2;
const HEADS: usize = 2;

/// One token's KV: a number per layer, written into a channel of every head's key and value.
pub(super) type Row = [u16; LAYERS];

#[derive(Debug)]
pub(super) struct FakeModel {
    config: Config,
    rows: Vec<Vec<f32>>,
}

pub(super) fn config(context: usize) -> Config {
    Config {
        name: "fake".to_owned(),
        layers: LAYERS,
        heads: HEADS,
        kv_heads: HEADS,
        head_dim: 64,
        embedding: 64,
        feed_forward: 64,
        vocab: VOCABULARY as usize,
        context,
        rope_theta: 10_000.0,
        norm_epsilon: 1e-5,
    }
}

pub(super) fn engine(options: EngineOptions) -> Engine {
    engine_over(KvPool::new(&config(1000), options.blocks as usize), options)
}

pub(super) fn engine_over(pool: KvPool, options: EngineOptions) -> Engine {
    let model = FakeModel {
        config: config(1000),
        rows: Vec::new(),
    };
    let tokenizer = Arc::new(crate::tokenizer::byte_tokenizer());
    Engine::with_evaluator(Box::new(model), tokenizer, options, pool)
}

fn mix(state: u64, value: u64) -> u64 {
    let x = (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 31)
}

/// The KV of a token after these rows.
pub(super) fn next_row(before: &[Row], token: TokenId) -> Row {
    core::array::from_fn(|layer| {
        let start = mix(layer as u64 + 1, u64::from(token));
        let all = before
            .iter()
            .fold(start, |state, row| mix(state, u64::from(row[layer])));
        u16::try_from(all >> 48).unwrap()
    })
}

/// The logits after these rows, the last of which is this token's. Often the token and its place alone decide, as with a
/// real model, so that drafts on wrong rows are right now and then.
pub(super) fn logits(rows: &[Row], token: TokenId) -> Vec<f32> {
    let place = mix(u64::from(token), rows.len() as u64);
    let all = rows
        .iter()
        .flatten()
        .fold(place, |state, value| mix(state, u64::from(*value)));
    let state = if place.is_multiple_of(4) { all } else { place };
    let logit = |token: u32| {
        let bits = u16::try_from(mix(state, u64::from(token)) >> 48).unwrap();
        let logit = f32::from(bits) / 8192.0;
        // The end is rare.
        if token == 0 { logit - 5.0 } else { logit }
    };
    (0..VOCABULARY).map(logit).collect()
}

pub(super) fn truth(tokens: &[TokenId]) -> Vec<Row> {
    let mut rows = Vec::new();
    for &token in tokens {
        rows.push(next_row(&rows, token));
    }
    rows
}

pub(super) fn read(kv: &SequenceKv<'_>, position: usize) -> Row {
    let (block, row) = (position / 64, position % 64);
    core::array::from_fn(|layer| {
        let value = kv.k(layer, 0, block)[7 * 64 + row];
        for head in 0..HEADS {
            assert_eq!(
                kv.k(layer, head, block)[7 * 64 + row],
                value,
                "heads differ"
            );
            assert_eq!(
                kv.v(layer, head, block)[row * 64 + 9],
                value,
                "values differ from keys"
            );
        }
        value
    })
}

pub(super) fn write(kv: &mut SequenceKvMut<'_>, position: usize, row: Row) {
    let (block, token) = (position / 64, position % 64);
    for (layer, value) in row.into_iter().enumerate() {
        for head in 0..HEADS {
            kv.k_mut(layer, head, block)[7 * 64 + token] = value;
            kv.v_mut(layer, head, block)[token * 64 + 9] = value;
        }
    }
}

impl Evaluate for FakeModel {
    fn config(&self) -> &Config {
        &self.config
    }

    fn forward(
        &mut self,
        pool: &mut KvPool,
        spans: &[Span<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ForwardError> {
        self.rows.clear();
        for span in spans {
            let everything = span.start + u32::try_from(span.tokens.len()).unwrap();
            let mut rows: Vec<_> = {
                let kv = SequenceKv {
                    pool,
                    blocks: span.blocks,
                    tokens: everything,
                };
                (0..span.start as usize).map(|p| read(&kv, p)).collect()
            };
            for (i, &token) in span.tokens.iter().enumerate() {
                let position = rows.len();
                let row = next_row(&rows, token);
                rows.push(row);
                let mut kv = SequenceKvMut {
                    pool,
                    blocks: span.blocks,
                    shared: 0,
                    tokens: everything,
                };
                write(&mut kv, position, row);
                let last = i + 1 == span.tokens.len();
                if span.logits == LogitsFor::All || (span.logits == LogitsFor::Last && last) {
                    self.rows.push(logits(&rows, token));
                }
            }
        }
        for layer in 0..LAYERS {
            observer.layer_written(layer, pool);
        }
        Ok(())
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.rows[row]
    }
}
