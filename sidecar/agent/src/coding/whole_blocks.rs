//! The baselines over a codec's unit: all its tokens, block after block, in each head after head.
//!
//! Baselines know no raw tokens, no planes and no tail: one segment holds everything.

use lynx_kernels::{BLOCK_TOKENS, Kind, TileSink, TileSource, UnitPlan};

use crate::baseline::{Baseline, DecodeError, EncodeError, Layout, TileShape};

/// Why bytes are no unit in a baseline's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Too few bytes.
    #[error("the unit ends in the middle of a tile")]
    Short,
    /// Too many.
    #[error("{0} bytes follow the unit's last tile")]
    Long(usize),
    /// A tile's bytes.
    #[error(transparent)]
    Tile(#[from] DecodeError),
}

/// Bytes of an encoded unit.
pub(super) fn encoded_len(baseline: Baseline, plan: &UnitPlan) -> usize {
    tiles(plan)
        .map(|tile| baseline.encoded_len(tile.shape))
        .sum()
}

/// Encodes the unit whose blocks `source` has. The unit must start at a block's first token.
///
/// # Errors
/// Where a block of the source is too small.
pub fn encode(
    baseline: Baseline,
    plan: &UnitPlan,
    source: &impl TileSource,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(encoded_len(baseline, plan));
    for tile in tiles(plan) {
        let data = source.rows(tile.head, tile.block).data;
        baseline.encode(tile.shape, data, &mut out)?;
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
) -> Result<(), UnitError> {
    for tile in tiles(plan) {
        let length = baseline.encoded_len(tile.shape);
        let (encoded, rest) = bytes.split_at_checked(length).ok_or(UnitError::Short)?;
        let data = sink.rows_mut(tile.head, tile.block).data;
        baseline.decode(tile.shape, encoded, data)?;
        bytes = rest;
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(UnitError::Long(bytes.len()))
    }
}

/// One head's tokens of one block.
#[derive(Clone, Copy, Debug)]
struct Tile {
    head: usize,
    block: usize,
    shape: TileShape,
}

fn tiles(plan: &UnitPlan) -> impl Iterator<Item = Tile> + '_ {
    let layout = match plan.kind() {
        Kind::K => Layout::ChannelMajor,
        Kind::V => Layout::TokenMajor,
    };
    let tokens = plan.tokens();
    let (start, end) = (tokens.start as usize, tokens.end as usize);
    (start / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)).flat_map(move |block| {
        let tokens = (end - block * BLOCK_TOKENS).min(BLOCK_TOKENS);
        // Always a shape: a unit's blocks have tokens, and the codec's head dimensions are below this one's limit.
        let shape = TileShape::new(layout, tokens, plan.shape().head_dim);
        (0..plan.shape().kv_heads)
            .filter_map(move |head| shape.map(|shape| Tile { head, block, shape }))
    })
}
