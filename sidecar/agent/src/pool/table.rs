//! Which blocks of a pool are whose.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lynx_kernels::{BLOCK_TOKENS, Kind, KvShape};

use super::by_engine::EngineValues;
use super::device::GpuValues;
use super::tiles::{Sink, Source};
use super::{Claim, Lost, Memory, Pool};

/// Why a block table can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Too few or too many.
    #[error("{tokens} tokens take {wanted} blocks, and the engine named {named}")]
    Count {
        /// Tokens of the prompt.
        tokens: u32,
        /// Blocks that they take.
        wanted: usize,
        /// Blocks that came.
        named: usize,
    },
    /// No such block.
    #[error("the engine named block {block}, and its pool has {blocks}")]
    OutOfRange {
        /// The block.
        block: u32,
        /// How many there are.
        blocks: u32,
    },
    /// One block for two purposes.
    #[error(
        "block {block} is in use by another request: the engine must wait until that one is released"
    )]
    InUse {
        /// The block.
        block: u32,
    },
    /// One block for two parts of a prompt.
    #[error("the engine named block {block} twice: each part of a prompt has a block of its own")]
    Twice {
        /// The block.
        block: u32,
    },
    /// A start that is none.
    #[error(
        "the KV is to start at token {from_token}: it must be a multiple of {step} below the prompt's {tokens}"
    )]
    Start {
        /// The start.
        from_token: u32,
        /// What it must be a multiple of: the codec's blocks, and the pool's.
        step: usize,
        /// Tokens of the prompt.
        tokens: u32,
    },
}

/// Why blocks can't be read or written now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The engine has not published them.
    #[error("layer {layer} is published up to token {published}, not up to {wanted}")]
    NotPublished {
        /// The layer.
        layer: usize,
        /// How far it is published.
        published: u32,
        /// How far it is wanted.
        wanted: u32,
    },
    /// They are the engine's at the moment.
    #[error("the blocks are the engine's: wait for its WriteGrant")]
    NotGranted,
    /// The pool has no such layer, or the table no such tokens.
    #[error("the request has no tokens {}..{} of layer {layer}", tokens.start, tokens.end)]
    Nowhere {
        /// The layer.
        layer: usize,
        /// The tokens.
        tokens: Range<u32>,
    },
    /// They were looked for in the processor's memory.
    #[error(
        "the blocks are not in memory of this process: only a GPU's kernels, or their engine, reach them"
    )]
    Elsewhere,
    /// Nobody can.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// One layer's K or V, to be read where it is.
#[derive(Debug)]
pub enum Values<'a> {
    /// By the processor.
    Host(Source<'a>),
    /// By a GPU.
    Gpu(GpuValues<'a>),
    /// By their engine.
    Engine(EngineValues<'a>),
}

/// The same, to be written.
#[derive(Debug)]
pub enum ValuesMut<'a> {
    /// By the processor.
    Host(Sink<'a>),
    /// By a GPU.
    Gpu(GpuValues<'a>),
    /// By their engine.
    Engine(EngineValues<'a>),
}

/// The blocks of a prompt at a prefill engine, from its `PrefillStarted` to its `Release`.
#[derive(Debug)]
pub struct Readable {
    claimed: Claimed,
    /// For each layer, how many tokens from the start are published.
    published: Vec<AtomicU32>,
}

/// The blocks of a prompt at a decode engine, from its `Expect` on.
#[derive(Debug)]
pub struct Writable {
    grant: Grant,
}

/// Whether a request's blocks are the agent's; clones tell of the same.
#[derive(Clone, Debug)]
pub(crate) struct Grant(Arc<Granted>);

#[derive(Debug)]
struct Granted {
    claimed: Claimed,
    given: AtomicBool,
}

impl Readable {
    /// Blocks for `tokens` tokens, of which `cached` are published in all layers.
    ///
    /// # Errors
    /// Where the table is none.
    pub fn new(
        pool: &Arc<Pool>,
        blocks: Vec<u32>,
        tokens: u32,
        cached: u32,
    ) -> Result<Self, TableError> {
        let claimed = Claimed::new(pool, blocks, 0..tokens, Claim::Read)?;
        let layers = pool.layout.shape().layers;
        let published = std::iter::repeat_with(|| AtomicU32::new(cached)).take(layers);
        Ok(Self {
            published: published.collect(),
            claimed,
        })
    }

    /// The KV's shape.
    pub fn shape(&self) -> KvShape {
        self.claimed.pool.layout.shape()
    }

    /// Whether what was read of the pool until now is worth anything.
    ///
    /// # Errors
    /// It isn't.
    pub fn intact(&self) -> Result<(), AccessError> {
        Ok(self.claimed.pool.intact()?)
    }

    /// How many tokens from the start on are published in this layer; 0 for a layer that there isn't.
    pub fn published(&self, layer: usize) -> u32 {
        let published = self.published.get(layer);
        published.map_or(0, |published| published.load(Ordering::Acquire))
    }

    /// Notes that this layer is published up to `end`.
    pub(crate) fn publish(&self, layer: usize, end: u32) {
        if let Some(published) = self.published.get(layer) {
            published.fetch_max(end, Ordering::Release);
        }
    }

    /// One layer's K or V of these tokens' blocks.
    ///
    /// # Errors
    /// Where they aren't published.
    pub fn source(
        &self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Source<'_>, AccessError> {
        on_host(self.values(layer, kind, tokens)?)
    }

    /// The same, wherever it is.
    ///
    /// # Errors
    /// Where they aren't published.
    pub fn values(
        &self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Values<'_>, AccessError> {
        let published = self.published(layer);
        if tokens.end > published {
            return Err(AccessError::NotPublished {
                layer,
                published,
                wanted: tokens.end,
            });
        }
        self.claimed.values(layer, kind, tokens)
    }
}

impl Writable {
    /// Blocks for `tokens` tokens, of which those from `from_token` on are the agent's until further notice.
    ///
    /// # Errors
    /// Where the table is none.
    pub fn new(
        pool: &Arc<Pool>,
        blocks: Vec<u32>,
        tokens: u32,
        from_token: u32,
    ) -> Result<Self, TableError> {
        let claimed = Claimed::new(pool, blocks, from_token..tokens, Claim::Write)?;
        let given = AtomicBool::new(true);
        Ok(Self {
            grant: Grant(Arc::new(Granted { claimed, given })),
        })
    }

    /// The KV's shape.
    pub fn shape(&self) -> KvShape {
        self.claimed().pool.layout.shape()
    }

    fn claimed(&self) -> &Claimed {
        &self.grant.0.claimed
    }

    /// Whether the blocks are the agent's: from the first moment on, and later while the engine grants it.
    pub fn is_granted(&self) -> bool {
        self.grant.is_given()
    }

    /// What tells whether the blocks are the agent's.
    pub(crate) fn grant(&self) -> Grant {
        self.grant.clone()
    }

    /// One layer's K or V of these tokens' blocks, to be written.
    ///
    /// # Errors
    /// Where they are the engine's at the moment, or not this request's.
    pub fn sink(
        &mut self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Sink<'_>, AccessError> {
        match self.values_mut(layer, kind, tokens)? {
            ValuesMut::Host(sink) => Ok(sink),
            ValuesMut::Gpu(_) | ValuesMut::Engine(_) => Err(AccessError::Elsewhere),
        }
    }

    /// The same, wherever they are.
    ///
    /// # Errors
    /// As for [`sink`](Self::sink).
    pub fn values_mut(
        &mut self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<ValuesMut<'_>, AccessError> {
        Ok(match self.values(layer, kind, tokens)? {
            Values::Gpu(values) => ValuesMut::Gpu(values),
            Values::Engine(values) => ValuesMut::Engine(values),
            Values::Host(Source {
                mapping,
                layout,
                blocks,
                skipped,
                ..
            }) => ValuesMut::Host(Sink {
                mapping,
                layout,
                blocks,
                skipped,
                layer,
                kind,
            }),
        })
    }

    /// Whether what was written into the pool until now is there.
    ///
    /// # Errors
    /// It isn't.
    pub fn intact(&self) -> Result<(), AccessError> {
        Ok(self.claimed().pool.intact()?)
    }

    /// The same, to be read.
    ///
    /// # Errors
    /// As for [`sink`](Self::sink).
    pub fn source(
        &self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Source<'_>, AccessError> {
        on_host(self.values(layer, kind, tokens)?)
    }

    fn values(
        &self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Values<'_>, AccessError> {
        if !self.is_granted() {
            return Err(AccessError::NotGranted);
        }
        self.claimed().values(layer, kind, tokens)
    }
}

impl Drop for Writable {
    /// Nobody is left who could write.
    fn drop(&mut self) {
        self.grant.end();
    }
}

impl Grant {
    /// Whether the blocks are the agent's.
    pub(crate) fn is_given(&self) -> bool {
        self.0.given.load(Ordering::Acquire)
    }

    /// Notes whose the blocks are from now on. Without effect after the [`end`](Self::end).
    pub(crate) fn set(&self, given: bool) {
        let given = given && self.0.claimed.is_held.load(Ordering::Acquire);
        self.0.given.store(given, Ordering::Release);
    }

    /// The blocks are the engine's for good, and may be another request's, wherever the [`Writable`] is: nobody may be
    /// writing.
    pub(crate) fn end(&self) {
        self.0.given.store(false, Ordering::Release);
        self.0.claimed.give_back();
    }
}

fn on_host(values: Values<'_>) -> Result<Source<'_>, AccessError> {
    match values {
        Values::Host(source) => Ok(source),
        Values::Gpu(_) | Values::Engine(_) => Err(AccessError::Elsewhere),
    }
}

/// A block table whose blocks no other table has for another purpose.
#[derive(Debug)]
struct Claimed {
    pool: Arc<Pool>,
    blocks: Vec<u32>,
    /// The tokens whose blocks are claimed; those before belong to nobody here.
    tokens: Range<u32>,
    claim: Claim,
    is_held: AtomicBool,
}

impl Claimed {
    fn new(
        pool: &Arc<Pool>,
        blocks: Vec<u32>,
        tokens: Range<u32>,
        claim: Claim,
    ) -> Result<Self, TableError> {
        let block = pool.layout.block_tokens();
        let step = block.max(BLOCK_TOKENS);
        if tokens.is_empty() || !(tokens.start as usize).is_multiple_of(step) {
            return Err(TableError::Start {
                from_token: tokens.start,
                step,
                tokens: tokens.end,
            });
        }
        let wanted = (tokens.end as usize).div_ceil(block);
        if blocks.len() != wanted {
            return Err(TableError::Count {
                tokens: tokens.end,
                wanted,
                named: blocks.len(),
            });
        }
        if let Some(&block) = blocks.iter().find(|block| **block >= pool.blocks) {
            return Err(TableError::OutOfRange {
                block,
                blocks: pool.blocks,
            });
        }
        let mut seen = HashSet::with_capacity(blocks.len());
        if let Some(&block) = blocks.iter().find(|block| !seen.insert(**block)) {
            return Err(TableError::Twice { block });
        }
        let first = tokens.start as usize / block;
        pool.claim(&blocks[first..], claim)
            .map_err(|block| TableError::InUse { block })?;
        Ok(Self {
            pool: Arc::clone(pool),
            blocks,
            tokens,
            claim,
            is_held: AtomicBool::new(true),
        })
    }

    /// Gives the blocks back, once.
    fn give_back(&self) {
        if self.is_held.swap(false, Ordering::AcqRel) {
            let first = self.tokens.start as usize / self.pool.layout.block_tokens();
            self.pool.give_back(&self.blocks[first..], self.claim);
        }
    }

    fn values(
        &self,
        layer: usize,
        kind: Kind,
        tokens: Range<u32>,
    ) -> Result<Values<'_>, AccessError> {
        self.pool.intact()?;
        let is_within = self.tokens.start <= tokens.start && tokens.end <= self.tokens.end;
        if layer >= self.pool.layout.shape().layers || tokens.is_empty() || !is_within {
            return Err(AccessError::Nowhere { layer, tokens });
        }
        let layout = &self.pool.layout;
        let first = tokens.start as usize / layout.block_tokens();
        let end = (tokens.end as usize).div_ceil(layout.block_tokens());
        let blocks = &self.blocks[first..end];
        Ok(match &self.pool.memory {
            Memory::Host(mapping) => Values::Host(Source {
                mapping,
                layout,
                blocks,
                skipped: first,
                layer,
                kind,
            }),
            Memory::Gpu(gpu) => Values::Gpu(gpu.values(layer, kind, blocks)),
            Memory::Engine(engine) => Values::Engine(EngineValues {
                engine,
                layer,
                kind,
                blocks: blocks.to_vec(),
            }),
        })
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.give_back();
    }
}
