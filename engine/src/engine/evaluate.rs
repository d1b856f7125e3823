//! What an engine needs of a model: a seam, so that the engine's own tests can use a model whose every answer is known.

use std::sync::Arc;

use core::fmt::Debug;

use crate::{Config, ForwardError, KvPool, Logits, Model, Observer, Span, Workers};

/// Evaluates spans of tokens.
pub(super) trait Evaluate: Debug + Send {
    /// The model's numbers.
    fn config(&self) -> &Config;

    /// Evaluates; see [`Model::forward`].
    fn forward(
        &mut self,
        pool: &mut KvPool,
        spans: &[Span<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ForwardError>;

    /// A row of logits of the last call, in the order of its spans.
    fn logits(&self, row: usize) -> &[f32];
}

/// A real model with its threads.
#[derive(Debug)]
pub(super) struct RealModel {
    model: Arc<Model>,
    workers: Workers,
    logits: Logits,
}

impl RealModel {
    pub(super) fn new(model: Arc<Model>, workers: Workers) -> Self {
        Self {
            model,
            workers,
            logits: Logits::default(),
        }
    }
}

impl Evaluate for RealModel {
    fn config(&self) -> &Config {
        self.model.config()
    }

    fn forward(
        &mut self,
        pool: &mut KvPool,
        spans: &[Span<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ForwardError> {
        self.model
            .forward(&self.workers, pool, spans, observer, &mut self.logits)
    }

    fn logits(&self, row: usize) -> &[f32] {
        self.logits.row(row)
    }
}
