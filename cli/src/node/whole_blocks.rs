//! The baselines over a codec's unit: all its tokens, block after block, in each head after head.
//!
//! Baselines know no raw tokens, no planes and no tail: one segment holds everything.

use anyhow::{Context as _, Result, ensure};
use lynx_kernels::{BLOCK_TOKENS, Kind, TileSink, TileSource, UnitPlan};

use crate::baseline::{Baseline, Layout, TileShape};

/// Bytes of an encoded unit.
pub fn encoded_len(baseline: Baseline, plan: &UnitPlan) -> usize {
    tiles(plan)
        .filter_map(|tile| tile.shape(plan))
        .map(|shape| baseline.encoded_len(shape))
        .sum()
}

/// Encodes the unit whose blocks `source` has. The unit must start at a block's first token.
///
/// # Errors
/// Where a block of the source is too small.
pub fn encode(baseline: Baseline, plan: &UnitPlan, source: &impl TileSource) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(encoded_len(baseline, plan));
    for tile in tiles(plan) {
        let shape = tile.shape(plan).context("an empty tile")?;
        baseline.encode(shape, source.rows(tile.head, tile.block).data, &mut out)?;
    }
    Ok(out)
}

/// Decodes a unit into `sink`.
///
/// # Errors
/// Where the bytes are not what [`encode`] gives for this plan.
pub fn decode(
    baseline: Baseline,
    plan: &UnitPlan,
    mut bytes: &[u8],
    sink: &mut impl TileSink,
) -> Result<()> {
    for tile in tiles(plan) {
        let shape = tile.shape(plan).context("an empty tile")?;
        let length = baseline.encoded_len(shape);
        ensure!(
            bytes.len() >= length,
            "the unit ends in the middle of a tile"
        );
        let (encoded, rest) = bytes.split_at(length);
        baseline.decode(shape, encoded, sink.rows_mut(tile.head, tile.block).data)?;
        bytes = rest;
    }
    ensure!(
        bytes.is_empty(),
        "{} bytes follow the unit's last tile",
        bytes.len()
    );
    Ok(())
}

/// One head's tokens of one block.
#[derive(Clone, Copy, Debug)]
struct Tile {
    head: usize,
    block: usize,
    tokens: usize,
}

impl Tile {
    fn shape(self, plan: &UnitPlan) -> Option<TileShape> {
        let layout = match plan.kind() {
            Kind::K => Layout::ChannelMajor,
            Kind::V => Layout::TokenMajor,
        };
        TileShape::new(layout, self.tokens, plan.shape().head_dim)
    }
}

fn tiles(plan: &UnitPlan) -> impl Iterator<Item = Tile> + '_ {
    let tokens = plan.tokens();
    let (start, end) = (tokens.start as usize, tokens.end as usize);
    (start / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)).flat_map(move |block| {
        let tokens = (end - block * BLOCK_TOKENS).min(BLOCK_TOKENS);
        (0..plan.shape().kv_heads).map(move |head| Tile {
            head,
            block,
            tokens,
        })
    })
}
