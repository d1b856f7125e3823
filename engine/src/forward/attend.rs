//! How attention is divided among the threads. None of it shows in the results.

use super::Span;
use crate::attention::{Attend, AttendBlocks, Cache, Group, MergeShares, Stat};
use crate::config::Config;
use crate::kv::KvPool;
use crate::panels::{PANEL, Panels, Row};
use crate::workers::Workers;

/// Query rows that go through a block together: a compromise between reading a block often, and keeping their scores and
/// sums next to the block in the first-level cache.
const GROUP_ROWS: usize = 24;
/// Blocks whose shares one task computes where a sequence is divided.
const TASK_BLOCKS: usize = 4;

/// The groups of a forward pass, and room for their results.
#[derive(Debug, Default)]
pub(super) struct Attention {
    groups: Vec<Group>,
    /// The results of all groups: `[group][row][panel]`.
    results: Vec<Row>,
    shares: Vec<Row>,
    stats: Vec<Stat>,
}

impl Attention {
    /// Divides the rows of a pass into groups.
    pub(super) fn plan(&mut self, config: &Config, spans: &[Span<'_>]) {
        self.groups.clear();
        let per_token = config.group();
        let together = (GROUP_ROWS / per_token).max(1);
        let mut span_row = 0;
        for (index, span) in spans.iter().enumerate() {
            for first in (0..span.tokens.len()).step_by(together) {
                self.groups.extend((0..config.kv_heads).map(|head| Group {
                    span: index,
                    head,
                    first_row: span_row + first,
                    tokens: together.min(span.tokens.len() - first),
                    position: span.start as usize + first,
                    per_token,
                    panels: config.head_dim / PANEL,
                }));
            }
            span_row += span.tokens.len();
        }
        let cells = self.groups.iter().map(cells).sum();
        self.results.resize(cells, [0.0; PANEL]);
    }

    /// Computes the attention of all rows of a layer. `queries` has the query heads in its first panels; `out` gets the
    /// results, a head after the other.
    pub(super) fn run(
        &mut self,
        workers: &Workers,
        cache: (&KvPool, usize),
        spans: &[Span<'_>],
        queries: &Panels,
        out: &mut Panels,
    ) {
        let cache = |group: &Group| Cache {
            pool: cache.0,
            layer: cache.1,
            blocks: spans[group.span].blocks,
        };
        if workers.threads() > 1 && self.groups.len() < 2 * workers.threads() {
            self.run_divided(workers, &cache, queries);
        } else {
            let tasks = pieces(&mut self.results, self.groups.iter().map(cells));
            let tasks = self.groups.iter().zip(tasks).collect();
            workers.each(tasks, |(group, out), local| {
                let (group, cache, local) = (**group, cache(group), &mut local.attention);
                workers.level().run(Attend {
                    group,
                    cache,
                    queries,
                    local,
                    out,
                });
            });
        }
        self.scatter(out);
    }

    /// With few groups, threads share the blocks of each.
    fn run_divided<'a>(
        &mut self,
        workers: &Workers,
        cache: &(impl Fn(&Group) -> Cache<'a> + Sync),
        queries: &Panels,
    ) {
        let tasks: Vec<(Group, usize, usize)> = self
            .groups
            .iter()
            .flat_map(|group| {
                let firsts = (0..group.blocks()).step_by(TASK_BLOCKS);
                firsts.map(|first| (*group, first, TASK_BLOCKS.min(group.blocks() - first)))
            })
            .collect();
        let share_cells = |(group, _, blocks): &(Group, usize, usize)| blocks * cells(group);
        let share_rows = |(group, _, blocks): &(Group, usize, usize)| blocks * group.rows();
        self.shares
            .resize(tasks.iter().map(share_cells).sum(), [0.0; PANEL]);
        self.stats
            .resize(tasks.iter().map(share_rows).sum(), Stat::NONE);
        let shares = pieces(&mut self.shares, tasks.iter().map(share_cells));
        let stats = pieces(&mut self.stats, tasks.iter().map(share_rows));
        let tasks = tasks.iter().zip(shares).zip(stats).collect();
        workers.each(tasks, |((task, shares), stats), local| {
            let (group, first_block, _) = **task;
            let (cache, local) = (cache(&group), &mut local.attention);
            workers.level().run(AttendBlocks {
                group,
                cache,
                queries,
                local,
                first_block,
                shares,
                stats,
            });
        });
        let mut tasks = Vec::with_capacity(self.groups.len());
        let (mut shares, mut stats) = (self.shares.as_slice(), self.stats.as_slice());
        let results = pieces(&mut self.results, self.groups.iter().map(cells));
        for (group, out) in self.groups.iter().zip(results) {
            let (own, rest) = shares.split_at(group.blocks() * cells(group));
            let (own_stats, rest_stats) = stats.split_at(group.blocks() * group.rows());
            (shares, stats) = (rest, rest_stats);
            tasks.push((*group, own, own_stats, out));
        }
        workers.each(tasks, |(group, shares, stats, out), local| {
            let (group, local) = (*group, &mut local.attention);
            workers.level().run(MergeShares {
                group,
                shares,
                stats,
                local,
                out,
            });
        });
    }

    /// Copies the results to where the next product reads them.
    fn scatter(&self, out: &mut Panels) {
        let mut results = self.results.iter();
        for group in &self.groups {
            for row in 0..group.rows() {
                let head = group.head * group.per_token + row % group.per_token;
                for (panel, result) in (0..group.panels).zip(&mut results) {
                    *out.row_mut(
                        head * group.panels + panel,
                        group.first_row + row / group.per_token,
                    ) = *result;
                }
            }
        }
    }
}

/// The size of a group's result, in rows of panels.
fn cells(group: &Group) -> usize {
    group.rows() * group.panels
}

/// Cuts a slice into pieces of given lengths.
fn pieces<T>(mut all: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    lengths
        .map(|length| {
            let (piece, rest) = std::mem::take(&mut all).split_at_mut(length);
            all = rest;
            piece
        })
        .collect()
}
