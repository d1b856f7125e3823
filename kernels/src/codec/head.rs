//! The head: parameters, raw tokens, escaped groups.

use super::{MergeError, Segment};
use crate::group::Params;
use crate::plan::{PARAM_BYTES, Tile, UnitPlan};
use crate::rows::{Matrix, MatrixMut, Size, TileSink, TileSource};
use crate::{BLOCK_TOKENS, Kind};

/// Writes a tile's parameters, four bytes each.
pub(super) fn write_params(params: &[Params], out: &mut [u8]) {
    for (params, out) in params.iter().zip(out.as_chunks_mut::<PARAM_BYTES>().0) {
        *out = params.0.to_le_bytes();
    }
}

/// Appends the escaped groups' values.
pub(super) fn write_escapes(params: &[Params], tile: &Matrix<'_>, head: &mut Vec<u8>) {
    for (group, params) in params.iter().enumerate() {
        if params.is_escape() {
            head.extend(tile.row(group).iter().flat_map(|bits| bits.to_le_bytes()));
        }
    }
}

/// Writes the raw tokens: token after token, in each head after head, in each channel after channel.
pub(super) fn write_raw(plan: &UnitPlan, source: &impl TileSource, out: &mut [u8]) {
    let vectors = out.chunks_exact_mut(plan.shape().head_dim * 2);
    for ((position, head), out) in raw_vectors(plan).zip(vectors) {
        let rows = source.rows(head, position / BLOCK_TOKENS);
        for (channel, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let bits = rows.data[element(plan, position, channel, rows.stride)];
            *out = bits.to_le_bytes();
        }
    }
}

/// Puts the raw tokens back.
pub(super) fn read_raw(plan: &UnitPlan, raw: &[u8], sink: &mut impl TileSink) {
    let vectors = raw.chunks_exact(plan.shape().head_dim * 2);
    for ((position, head), vector) in raw_vectors(plan).zip(vectors) {
        let rows = sink.rows_mut(head, position / BLOCK_TOKENS);
        for (channel, bytes) in vector.as_chunks::<2>().0.iter().enumerate() {
            rows.data[element(plan, position, channel, rows.stride)] = u16::from_le_bytes(*bytes);
        }
    }
}

/// The (position, head) pairs of the raw tokens, in order.
fn raw_vectors(plan: &UnitPlan) -> impl Iterator<Item = (usize, usize)> + '_ {
    let heads = plan.shape().kv_heads;
    let positions = plan.raw_tokens().flatten();
    positions.flat_map(move |position| (0..heads).map(move |head| (position as usize, head)))
}

fn element(plan: &UnitPlan, position: usize, channel: usize, stride: usize) -> usize {
    let token = position % BLOCK_TOKENS;
    match plan.kind() {
        Kind::K => channel * stride + token,
        Kind::V => token * stride + channel,
    }
}

/// A head that is being read, tile after tile.
pub(super) struct HeadReader<'a> {
    params: &'a [u8],
    raw: &'a [u8],
    escapes: &'a [u8],
    len: usize,
    tile: usize,
}

impl<'a> HeadReader<'a> {
    pub(super) fn new(plan: &UnitPlan, head: &'a [u8]) -> Result<Self, MergeError> {
        let parts = head.split_at_checked(plan.param_bytes());
        let parts = parts.and_then(|(params, rest)| {
            let (raw, escapes) = rest.split_at_checked(plan.raw_bytes())?;
            Some(Self {
                params,
                raw,
                escapes,
                len: head.len(),
                tile: 0,
            })
        });
        parts.ok_or(MergeError::Length {
            segment: Segment::Head,
            expected: plan.head_bytes(),
            found: head.len(),
        })
    }

    /// The next tile's parameters, all valid.
    pub(super) fn params(&mut self, params: &mut [Params]) -> Result<(), MergeError> {
        // The length was checked for all tiles.
        let (bytes, rest) = self.params.split_at(params.len() * PARAM_BYTES);
        self.params = rest;
        for (group, (params, bytes)) in params.iter_mut().zip(bytes.as_chunks().0).enumerate() {
            *params = Params(u32::from_le_bytes(*bytes));
            if !params.are_valid() {
                return Err(MergeError::Params {
                    tile: self.tile,
                    group,
                });
            }
        }
        self.tile += 1;
        Ok(())
    }

    /// Puts the escaped groups of the tile back.
    pub(super) fn escapes(
        &mut self,
        params: &[Params],
        out: &mut MatrixMut<'_>,
    ) -> Result<(), MergeError> {
        for (group, _) in params
            .iter()
            .enumerate()
            .filter(|(_, params)| params.is_escape())
        {
            let row = out.row(group);
            let Some((bytes, rest)) = self.escapes.split_at_checked(row.len() * 2) else {
                let missing = row.len() * 2 - self.escapes.len();
                return Err(self.length(self.len + missing));
            };
            self.escapes = rest;
            for (bits, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
                *bits = u16::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }

    /// Puts the raw tokens back, after all tiles.
    pub(super) fn finish(
        self,
        plan: &UnitPlan,
        sink: &mut impl TileSink,
    ) -> Result<(), MergeError> {
        if !self.escapes.is_empty() {
            return Err(self.length(self.len - self.escapes.len()));
        }
        read_raw(plan, self.raw, sink);
        Ok(())
    }

    fn length(&self, expected: usize) -> MergeError {
        MergeError::Length {
            segment: Segment::Head,
            expected,
            found: self.len,
        }
    }
}

/// The matrix of a tile in its block.
pub(super) fn source_matrix<'a>(
    plan: &UnitPlan,
    tile: Tile,
    size: Size,
    source: &'a impl TileSource,
) -> Matrix<'a> {
    let rows = source.rows(tile.head, tile.block);
    Matrix::new(rows, plan.first_element(tile, rows.stride), size)
}

/// The writable matrix of a tile in its block.
pub(super) fn sink_matrix<'a>(
    plan: &UnitPlan,
    tile: Tile,
    size: Size,
    sink: &'a mut impl TileSink,
) -> MatrixMut<'a> {
    let rows = sink.rows_mut(tile.head, tile.block);
    let first = plan.first_element(tile, rows.stride);
    MatrixMut::new(rows, first, size)
}
