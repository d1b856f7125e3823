//! One engine without a network: what calibration and the accuracy bench experiment on.
//!
//! It holds a prompt's KV twice. The exact copy is what the model computed; the coded copy is what another node would have
//! after a codec, so that the same tokens can be evaluated on both and compared row by row.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Context as _, Result};
use lynx_engine::{BlockId, KvPool, Logits, LogitsFor, Model, Observer, Span, TokenId, Workers};
use lynx_kernels::{BLOCK_TOKENS, Kind, KvShape, Rows, RowsMut, TileSink, TileSource};

use crate::stats;

/// Prompt tokens evaluated at a time.
const CHUNK: usize = 256;

/// A model, and room for one sequence twice.
#[derive(Debug)]
pub struct Lab {
    model: Model,
    workers: Workers,
    exact: KvPool,
    coded: KvPool,
    blocks: Vec<BlockId>,
    logits: Logits,
}

/// Which copy of the KV is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// As computed.
    Exact,
    /// As a codec left it.
    Coded,
}

impl Lab {
    /// Opens a model, with room for `max_tokens`.
    ///
    /// # Errors
    /// Where the file is no model that can be run.
    pub fn open(path: &Path, threads: usize, max_tokens: usize) -> Result<Self> {
        let model = Model::open(path).with_context(|| format!("opening {}", path.display()))?;
        let threads = NonZeroUsize::new(threads).context("at least one thread is needed")?;
        let workers = Workers::new(threads)?;
        let count = max_tokens.div_ceil(BLOCK_TOKENS);
        let blocks = (0..u32::try_from(count)?).map(BlockId).collect();
        let pool = || KvPool::new(model.config(), count);
        Ok(Self {
            exact: pool(),
            coded: pool(),
            model,
            workers,
            blocks,
            logits: Logits::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The KV's shape.
    pub fn shape(&self) -> KvShape {
        shape_of(&self.model)
    }

    /// Computes `prompt` into the exact copy and gives its first token, the most probable one. `progress` is told how many
    /// tokens are done.
    ///
    /// # Errors
    /// Where the prompt is longer than the lab or the model has room for.
    pub fn prefill(
        &mut self,
        prompt: &[TokenId],
        observer: &mut dyn Observer,
        mut progress: impl FnMut(usize),
    ) -> Result<TokenId> {
        let mut start = 0;
        for chunk in prompt.chunks(CHUNK) {
            self.evaluate(Copy::Exact, chunk, start, LogitsFor::Last, observer)?;
            start += chunk.len();
            progress(start);
        }
        self.best(0)
    }

    /// Evaluates `tokens` from position `start` on, each with its logits: rows that [`row`](Self::row) gives.
    ///
    /// # Errors
    /// Where the lab or the model has no room for them.
    pub fn replay(&mut self, copy: Copy, tokens: &[TokenId], start: usize) -> Result<()> {
        self.evaluate(copy, tokens, start, LogitsFor::All, &mut ())
    }

    /// The logits of one token of the last call.
    pub fn row(&self, row: usize) -> &[f32] {
        self.logits.row(row)
    }

    /// The most probable token after row `row`.
    ///
    /// # Errors
    /// Where the logits are no numbers.
    pub fn best(&self, row: usize) -> Result<TokenId> {
        let best = stats::argmax(self.logits.row(row))
            .context("the model gave no numbers: is its file damaged?")?;
        Ok(TokenId::try_from(best)?)
    }

    /// The greedy continuation after `first` at position `start`: `count` tokens, without `first`.
    ///
    /// # Errors
    /// Where the lab or the model has no room for them.
    pub fn greedy(
        &mut self,
        copy: Copy,
        first: TokenId,
        start: usize,
        count: usize,
    ) -> Result<Vec<TokenId>> {
        let mut tokens = Vec::with_capacity(count);
        let mut last = first;
        for position in (start..).take(count) {
            self.evaluate(copy, &[last], position, LogitsFor::Last, &mut ())?;
            last = self.best(0)?;
            tokens.push(last);
        }
        Ok(tokens)
    }

    /// One layer's exact K or V, to be read, and its coded copy, to be written.
    pub fn layer(&mut self, layer: usize, kind: Kind) -> (PoolSource<'_>, PoolSink<'_>) {
        (
            PoolSource {
                pool: &self.exact,
                layer,
                kind,
            },
            PoolSink {
                pool: &mut self.coded,
                layer,
                kind,
            },
        )
    }

    /// Whether the first `tokens` positions of both copies have the same bits.
    pub fn copies_agree(&self, tokens: usize) -> bool {
        let KvShape {
            layers,
            kv_heads,
            head_dim,
        } = self.shape();
        (0..tokens).all(|token| {
            let (block, slot) = (self.blocks[token / BLOCK_TOKENS], token % BLOCK_TOKENS);
            (0..layers).all(|layer| {
                (0..kv_heads).all(|head| {
                    let (k, l) = (
                        self.exact.k(layer, block, head),
                        self.coded.k(layer, block, head),
                    );
                    let (v, w) = (
                        self.exact.v(layer, block, head),
                        self.coded.v(layer, block, head),
                    );
                    let channels = slot * head_dim..(slot + 1) * head_dim;
                    v[channels.clone()] == w[channels]
                        && (0..head_dim).all(|channel| {
                            k[channel * BLOCK_TOKENS + slot] == l[channel * BLOCK_TOKENS + slot]
                        })
                })
            })
        })
    }

    fn evaluate(
        &mut self,
        copy: Copy,
        tokens: &[TokenId],
        start: usize,
        logits: LogitsFor,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let pool = match copy {
            Copy::Exact => &mut self.exact,
            Copy::Coded => &mut self.coded,
        };
        let span = Span {
            tokens,
            start: u32::try_from(start)?,
            blocks: &self.blocks,
            logits,
        };
        Ok(self
            .model
            .forward(&self.workers, pool, &[span], observer, &mut self.logits)?)
    }
}

/// The shape of a model's KV.
pub fn shape_of(model: &Model) -> KvShape {
    let config = model.config();
    KvShape {
        layers: config.layers,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
    }
}

/// One layer's K or V of the lab's sequence, to be read.
#[derive(Clone, Copy, Debug)]
pub struct PoolSource<'a> {
    pool: &'a KvPool,
    layer: usize,
    kind: Kind,
}

impl<'a> PoolSource<'a> {
    /// One layer's K or V of a pool whose blocks are those of one sequence, in order.
    pub fn new(pool: &'a KvPool, layer: usize, kind: Kind) -> Self {
        Self { pool, layer, kind }
    }
}

impl TileSource for PoolSource<'_> {
    fn rows(&self, head: usize, block: usize) -> Rows<'_> {
        let id = block_id(block);
        let data = match self.kind {
            Kind::K => self.pool.k(self.layer, id, head),
            Kind::V => self.pool.v(self.layer, id, head),
        };
        Rows {
            data,
            stride: stride(self.kind, data.len()),
        }
    }
}

/// One layer's K or V of the lab's sequence, to be written.
#[derive(Debug)]
pub struct PoolSink<'a> {
    pool: &'a mut KvPool,
    layer: usize,
    kind: Kind,
}

impl TileSink for PoolSink<'_> {
    fn rows_mut(&mut self, head: usize, block: usize) -> RowsMut<'_> {
        let id = block_id(block);
        let kind = self.kind;
        let data = match kind {
            Kind::K => self.pool.k_mut(self.layer, id, head),
            Kind::V => self.pool.v_mut(self.layer, id, head),
        };
        let stride = stride(kind, data.len());
        RowsMut { data, stride }
    }
}

/// The lab's sequence has the pool's blocks in order.
fn block_id(block: usize) -> BlockId {
    BlockId(u32::try_from(block).unwrap_or(u32::MAX))
}

/// Elements of a row: K's rows are channels of 64 tokens, V's rows are tokens of all channels.
fn stride(kind: Kind, elements: usize) -> usize {
    match kind {
        Kind::K => BLOCK_TOKENS,
        Kind::V => elements / BLOCK_TOKENS,
    }
}
