//! One pass, layer by layer.

use std::sync::PoisonError;

use super::norm::normalize;
use super::scratch::Scratch;
use super::{Logits, LogitsFor, Observer, Span};
use crate::kv::KvPool;
use crate::model::{Layer, Model};
use crate::panels::{PANEL, Panels, Row};
use crate::product::{Product, SwiGlu};
use crate::tile::Local;
use crate::weights::Matrix;
use crate::workers::Workers;

/// Rows of a product that one task computes: enough to make up for writing its weights out as floats, few enough to stay in
/// the second-level cache.
const TASK_ROWS: usize = 96;

/// Rows whose logits are computed together, which bounds the memory for them.
const LOGIT_ROWS: usize = 96;

/// Runs checked spans through all layers.
pub(super) fn run(
    model: &Model,
    workers: &Workers,
    pool: &mut KvPool,
    spans: &[Span<'_>],
    observer: &mut dyn Observer,
    out: &mut Logits,
) {
    // Taken before a thread of the pool is entered: a thread that waits for others may take up another pass meanwhile.
    let mut scratch = workers
        .scratch
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let scratch = &mut *scratch;
    scratch.prepare(model, spans);
    let pass = Pass {
        model,
        workers,
        spans,
    };
    for (index, layer) in model.layers.iter().enumerate() {
        workers.enter(|| pass.project(layer, scratch));
        scratch
            .rotations
            .apply(&mut scratch.qkv, model.config.heads + model.config.kv_heads);
        scratch.store_keys_and_values(&model.config, spans, pool, index);
        if observer.wants_queries() {
            scratch.collect_queries(&model.config);
            observer.queries(index, &scratch.queries);
        }
        observer.layer_written(index, pool);
        workers.enter(|| {
            pass.attend(index, pool, scratch);
            pass.after_attention(layer, scratch);
        });
    }
    workers.enter(|| pass.score(scratch, out));
}

struct Pass<'a> {
    model: &'a Model,
    workers: &'a Workers,
    spans: &'a [Span<'a>],
}

impl Pass<'_> {
    /// Queries, keys and values.
    fn project(&self, layer: &Layer, scratch: &mut Scratch) {
        let config = &self.model.config;
        normalize(
            &scratch.x,
            &layer.attention_norm,
            config.norm_epsilon,
            &mut scratch.normed,
        );
        let places: Vec<(&Matrix, usize)> = [&layer.query, &layer.key, &layer.value]
            .into_iter()
            .flat_map(|matrix| (0..matrix.panels()).map(move |panel| (matrix, panel)))
            .collect();
        let x = &scratch.normed;
        self.workers.each(tasks(&mut scratch.qkv), |task, local| {
            let (matrix, panel) = places[task.panel];
            let (first_row, wide) = (task.first_row, &mut *local.wide);
            let y = &mut *task.y;
            self.workers.level().run(Product {
                matrix,
                panel,
                x,
                first_row,
                y,
                wide,
            });
        });
    }

    fn attend(&self, layer: usize, pool: &KvPool, scratch: &mut Scratch) {
        let Scratch {
            attention,
            qkv,
            attended,
            ..
        } = scratch;
        attention.run(self.workers, (pool, layer), self.spans, qkv, attended);
    }

    /// The attention's output projection and the feed-forward layer, each added to the residual stream.
    fn after_attention(&self, layer: &Layer, scratch: &mut Scratch) {
        let Scratch {
            x,
            normed,
            attended,
            gated,
            ..
        } = scratch;
        self.add_product(&layer.attention_output, attended, x);
        normalize(
            x,
            &layer.feed_forward_norm,
            self.model.config.norm_epsilon,
            normed,
        );
        let normed = &*normed;
        self.workers.each(tasks(gated), |task, local| {
            let Local { wide, second, .. } = local;
            let (panel, first_row, level) = (task.panel, task.first_row, self.workers.level());
            second.resize(task.y.len(), [0.0; PANEL]);
            for (matrix, y) in [(&layer.gate, &mut *task.y), (&layer.up, second)] {
                level.run(Product {
                    matrix,
                    panel,
                    x: normed,
                    first_row,
                    y,
                    wide,
                });
            }
            level.run(SwiGlu {
                gate: task.y,
                up: second,
            });
        });
        self.add_product(&layer.down, gated, x);
    }

    /// `x += y * matrix`. The product is summed up alone first: next to the large numbers of the residual stream its terms
    /// would lose their lower bits.
    fn add_product(&self, matrix: &Matrix, y: &Panels, x: &mut Panels) {
        self.workers.each(tasks(x), |task, local| {
            let Local { wide, second, .. } = local;
            let (panel, first_row) = (task.panel, task.first_row);
            second.resize(task.y.len(), [0.0; PANEL]);
            self.workers.level().run(Product {
                matrix,
                panel,
                x: y,
                first_row,
                y: second,
                wide,
            });
            for (x, product) in task
                .y
                .as_flattened_mut()
                .iter_mut()
                .zip(second.as_flattened())
            {
                *x += product;
            }
        });
    }

    /// The logits of the rows that get some.
    fn score(&self, scratch: &mut Scratch, out: &mut Logits) {
        let Scratch {
            x,
            normed,
            last,
            logits,
            ..
        } = scratch;
        let wanted = wanted_rows(self.spans);
        let matrix = &self.model.output;
        let vocab = self.model.config.vocab;
        out.data.resize(wanted.len() * vocab, 0.0);
        let blocks = out.data.chunks_mut(LOGIT_ROWS * vocab);
        for (wanted, out) in wanted.chunks(LOGIT_ROWS).zip(blocks) {
            last.resize(wanted.len(), self.model.config.embedding);
            for (to, &from) in wanted.iter().enumerate() {
                for panel in 0..self.model.config.embedding / PANEL {
                    *last.row_mut(panel, to) = *x.row(panel, from);
                }
            }
            normed.resize(wanted.len(), self.model.config.embedding);
            normalize(
                last,
                &self.model.output_norm,
                self.model.config.norm_epsilon,
                normed,
            );
            let normed = &*normed;
            logits.resize(wanted.len(), matrix.panels() * PANEL);
            self.workers.each(tasks(logits), |task, local| {
                let Local { wide, .. } = local;
                let (panel, first_row) = (task.panel, task.first_row);
                self.workers.level().run(Product {
                    matrix,
                    panel,
                    x: normed,
                    first_row,
                    y: task.y,
                    wide,
                });
            });
            let logits = &*logits;
            self.workers.each(
                out.chunks_mut(vocab).enumerate().collect(),
                |(row, out), _| {
                    for (out, part) in out.chunks_mut(PANEL).zip(logits.whole_row(*row)) {
                        out.copy_from_slice(&part[..out.len()]);
                    }
                },
            );
        }
    }
}

/// The rows of the pass that get logits.
fn wanted_rows(spans: &[Span<'_>]) -> Vec<usize> {
    let mut wanted = Vec::new();
    let mut end = 0;
    for span in spans {
        let start = end;
        end += span.tokens.len();
        match span.logits {
            LogitsFor::None => {}
            LogitsFor::Last => wanted.push(end - 1),
            LogitsFor::All => wanted.extend(start..end),
        }
    }
    wanted
}

/// Some rows of one panel of a product.
struct Task<'a> {
    panel: usize,
    first_row: usize,
    y: &'a mut [Row],
}

/// Divides a matrix into tasks.
fn tasks(y: &mut Panels) -> Vec<Task<'_>> {
    let rows = y.rows();
    let panels = y.data_mut().chunks_mut(rows).enumerate();
    panels
        .flat_map(|(panel, y)| {
            let parts = y.chunks_mut(TASK_ROWS).enumerate();
            parts.map(move |(part, y)| Task {
                panel,
                first_row: part * TASK_ROWS,
                y,
            })
        })
        .collect()
}
