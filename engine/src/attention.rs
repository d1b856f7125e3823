//! Attention of some query rows over the KV blocks of their sequence.
//!
//! A row's result is defined block by block. A block's share is the softmax of its 64 scores alone: their maximum, the sum of
//! their exponentials, and the values weighted by these. Shares are merged in the order of the blocks. So a row's result
//! depends on its own position only, while the shares may be computed by one thread in turn or by several at once, and for any
//! number of rows together. One softmax over all scores would tie the order of its sum to the way the work is divided.

use crate::kv::{BLOCK_TOKENS, BlockId, KvPool};
use crate::panels::{PANEL, Panels, Row};
use crate::simd::{Kernel, LANES, Simd, exp, largest, sum};
use crate::tile::multiply;
use crate::weights::Bf16Rows;

/// A thread's working memory for attention.
#[derive(Debug, Default)]
pub(crate) struct Local {
    queries: Vec<Row>,
    scores: Vec<Row>,
    share: Vec<Row>,
    share_stats: Vec<Stat>,
    merged: Vec<Row>,
    merged_stats: Vec<Stat>,
}

/// The scale of a share: what its numbers are relative to, and their sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    max: f32,
    total: f32,
}

impl Stat {
    /// The share of no scores at all.
    pub(crate) const NONE: Self = Self {
        max: f32::NEG_INFINITY,
        total: 0.0,
    };
}

/// The query rows that one KV head serves, of some consecutive tokens of one sequence: `tokens` x `per_token` rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// Which sequence of the forward pass.
    pub(crate) span: usize,
    /// The KV head.
    pub(crate) head: usize,
    /// The first token's row in the forward pass.
    pub(crate) first_row: usize,
    /// How many tokens.
    pub(crate) tokens: usize,
    /// The first token's position in its sequence.
    pub(crate) position: usize,
    /// Query heads of a KV head.
    pub(crate) per_token: usize,
    /// Panels of a head.
    pub(crate) panels: usize,
}

impl Group {
    /// How many query rows there are; row `r` is of token `r / per_token`.
    pub(crate) fn rows(&self) -> usize {
        self.tokens * self.per_token
    }

    /// How many blocks the last token sees.
    pub(crate) fn blocks(&self) -> usize {
        (self.position + self.tokens).div_ceil(BLOCK_TOKENS)
    }

    /// How many tokens of a block row `r` sees.
    fn seen(&self, row: usize, block: usize) -> usize {
        let visible = self.position + row / self.per_token + 1;
        visible
            .saturating_sub(block * BLOCK_TOKENS)
            .min(BLOCK_TOKENS)
    }

    /// The first row that sees anything of a block; all later rows do.
    fn first_seeing(&self, block: usize) -> usize {
        let token = (block * BLOCK_TOKENS).saturating_sub(self.position);
        (token * self.per_token).min(self.rows())
    }

    /// Copies the rows together, `[panel][row]`, scaled by one over the root of the channels.
    fn gather(&self, queries: &Panels, into: &mut Vec<Row>) {
        let channels = u16::try_from(self.panels * PANEL).expect("a head has few channels");
        let scale = 1.0 / f32::from(channels).sqrt();
        into.clear();
        for panel in 0..self.panels {
            for row in 0..self.rows() {
                let head = self.head * self.per_token + row % self.per_token;
                let from = queries.row(
                    head * self.panels + panel,
                    self.first_row + row / self.per_token,
                );
                into.push(from.map(|channel| channel * scale));
            }
        }
    }
}

/// The keys and values of a sequence in one layer.
#[derive(Clone, Copy)]
pub(crate) struct Cache<'a> {
    pub(crate) pool: &'a KvPool,
    pub(crate) layer: usize,
    /// The sequence's blocks.
    pub(crate) blocks: &'a [BlockId],
}

/// All of a group's attention, on one thread.
pub(crate) struct Attend<'a> {
    pub(crate) group: Group,
    pub(crate) cache: Cache<'a>,
    pub(crate) queries: &'a Panels,
    pub(crate) local: &'a mut Local,
    /// The result: `[row][panel]`.
    pub(crate) out: &'a mut [Row],
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            group,
            cache,
            queries,
            local,
            out,
        } = self;
        group.gather(queries, &mut local.queries);
        let (rows, cells) = (group.rows(), group.rows() * group.panels);
        local.scores.resize(rows, [0.0; PANEL]);
        local.share.resize(cells, [0.0; PANEL]);
        local.share_stats.resize(rows, Stat::NONE);
        local.reset_merged(rows, cells);
        for block in 0..group.blocks() {
            let share = Share {
                rows: &mut local.share,
                stats: &mut local.share_stats,
            };
            compute(
                s,
                &group,
                (cache, block),
                &local.queries,
                &mut local.scores,
                share,
            );
            let merged = Share {
                rows: &mut local.merged,
                stats: &mut local.merged_stats,
            };
            merge(s, &group, block, &local.share, &local.share_stats, merged);
        }
        finish(&group, &local.merged, &local.merged_stats, out);
    }
}

/// Some blocks' shares of a group's attention, to be merged later.
pub(crate) struct AttendBlocks<'a> {
    pub(crate) group: Group,
    pub(crate) cache: Cache<'a>,
    pub(crate) queries: &'a Panels,
    pub(crate) local: &'a mut Local,
    pub(crate) first_block: usize,
    /// The shares: `[block][panel][row]`.
    pub(crate) shares: &'a mut [Row],
    /// Their scales: `[block][row]`.
    pub(crate) stats: &'a mut [Stat],
}

impl Kernel for AttendBlocks<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self {
            group,
            cache,
            queries,
            local,
            ..
        } = self;
        group.gather(queries, &mut local.queries);
        let (rows, cells) = (group.rows(), group.rows() * group.panels);
        local.scores.resize(rows, [0.0; PANEL]);
        let shares = self
            .shares
            .chunks_exact_mut(cells)
            .zip(self.stats.chunks_exact_mut(rows));
        for (block, (rows, stats)) in (self.first_block..).zip(shares) {
            let share = Share { rows, stats };
            compute(
                s,
                &group,
                (cache, block),
                &local.queries,
                &mut local.scores,
                share,
            );
        }
    }
}

/// The shares of all of a group's blocks, merged.
pub(crate) struct MergeShares<'a> {
    pub(crate) group: Group,
    /// `[block][panel][row]`.
    pub(crate) shares: &'a [Row],
    /// `[block][row]`.
    pub(crate) stats: &'a [Stat],
    pub(crate) local: &'a mut Local,
    /// The result: `[row][panel]`.
    pub(crate) out: &'a mut [Row],
}

impl Kernel for MergeShares<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { group, local, .. } = self;
        let (rows, cells) = (group.rows(), group.rows() * group.panels);
        local.reset_merged(rows, cells);
        let shares = self
            .shares
            .chunks_exact(cells)
            .zip(self.stats.chunks_exact(rows));
        for (block, (share, stats)) in shares.enumerate() {
            let merged = Share {
                rows: &mut local.merged,
                stats: &mut local.merged_stats,
            };
            merge(s, &group, block, share, stats, merged);
        }
        finish(&group, &local.merged, &local.merged_stats, self.out);
    }
}

impl Local {
    fn reset_merged(&mut self, rows: usize, cells: usize) {
        self.merged.clear();
        self.merged.resize(cells, [0.0; PANEL]);
        self.merged_stats.clear();
        self.merged_stats.resize(rows, Stat::NONE);
    }
}

/// A share to be written: rows `[panel][row]` and their scales.
struct Share<'a> {
    rows: &'a mut [Row],
    stats: &'a mut [Stat],
}

/// One block's share for all rows that see it.
#[inline(always)]
fn compute<S: Simd>(
    s: S,
    group: &Group,
    (cache, block): (Cache<'_>, usize),
    queries: &[Row],
    scores: &mut [Row],
    share: Share<'_>,
) {
    let (rows, start) = (group.rows(), group.first_seeing(block));
    let id = cache.blocks[block];
    let keys = cache.pool.key_rows(cache.layer, id, group.head);
    let scores = &mut scores[start..rows];
    scores.fill([0.0; PANEL]);
    for (keys, queries) in keys.chunks_exact(PANEL).zip(queries.chunks_exact(rows)) {
        let keys = Bf16Rows {
            rows: keys,
            stride: 1,
            inputs: PANEL,
        };
        multiply(s, keys, &queries[start..], scores);
    }
    for (row, scores) in (start..rows).zip(scores.iter_mut()) {
        share.stats[row] = soften(s, scores, group.seen(row, block));
    }
    let values = cache.pool.value_rows(cache.layer, id, group.head);
    for (panel, sums) in share.rows.chunks_exact_mut(rows).enumerate() {
        let values = Bf16Rows {
            rows: &values[panel..],
            stride: group.panels,
            // Later tokens of the block may not have been written yet, and could hold anything.
            inputs: group.seen(rows - 1, block),
        };
        let sums = &mut sums[start..];
        sums.fill([0.0; PANEL]);
        multiply(s, values, scores, sums);
    }
}

/// Turns the first `seen` scores into their exponentials relative to the largest, and the others into zeros.
#[inline(always)]
fn soften<S: Simd>(s: S, scores: &mut Row, seen: usize) -> Stat {
    let lanes = scores.as_chunks_mut::<LANES>().0;
    let below = s.splat(f32::NEG_INFINITY);
    let mut top = below;
    let mut loaded = [below; PANEL / LANES];
    let seen_of = |i: usize| seen.saturating_sub(i * LANES).min(LANES);
    for (i, (lanes, loaded)) in lanes.iter().zip(&mut loaded).enumerate() {
        *loaded = s.first(seen_of(i), s.load(lanes), below);
        top = s.max(top, *loaded);
    }
    let max = largest(s, top);
    let (shift, mut total) = (s.splat(max), s.splat(0.0));
    for (i, (lanes, loaded)) in lanes.iter_mut().zip(loaded).enumerate() {
        let weight = s.first(seen_of(i), exp(s, s.sub(loaded, shift)), s.splat(0.0));
        total = s.add(total, weight);
        s.store(weight, lanes);
    }
    let total = sum(s, total);
    Stat { max, total }
}

/// Brings two shares to a common scale and adds them.
#[inline(always)]
fn merge<S: Simd>(
    s: S,
    group: &Group,
    block: usize,
    share: &[Row],
    stats: &[Stat],
    merged: Share<'_>,
) {
    let rows = group.rows();
    for row in group.first_seeing(block)..rows {
        let (old, new) = (merged.stats[row], stats[row]);
        let max = if old.max > new.max { old.max } else { new.max };
        let mut factors = [0.0; LANES];
        factors[0] = old.max - max;
        factors[1] = new.max - max;
        let exponentials = exp(s, s.load(&factors));
        s.store(exponentials, &mut factors);
        let [keep, add, ..] = factors;
        let total = old.total.mul_add(keep, new.total * add);
        merged.stats[row] = Stat { max, total };
        let (keep, add) = (s.splat(keep), s.splat(add));
        for panel in 0..group.panels {
            let share = share[panel * rows + row].as_chunks().0;
            let sums = merged.rows[panel * rows + row].as_chunks_mut().0;
            for (sums, share) in sums.iter_mut().zip(share) {
                let added = s.mul(s.load(share), add);
                s.store(s.mul_add(s.load(sums), keep, added), sums);
            }
        }
    }
}

/// Divides by the sum of the exponentials.
#[inline(always)]
fn finish(group: &Group, merged: &[Row], stats: &[Stat], out: &mut [Row]) {
    for (row, out) in out.chunks_exact_mut(group.panels).enumerate() {
        let scale = 1.0 / stats[row].total;
        for (panel, out) in out.iter_mut().enumerate() {
            *out = merged[panel * group.rows() + row].map(|sum| sum * scale);
        }
    }
}
