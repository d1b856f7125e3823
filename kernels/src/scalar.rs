//! The truth: every kernel one element at a time, as the format is written down. The SIMD levels must be bit-equal to this.

use crate::bf16;
use crate::bits::{BitReader, BitWriter};
use crate::group::{Params, Rest};
use crate::rows::{Matrix, MatrixMut, Size};

/// A cell without BF16 values: codes that no encoder makes. Holds the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EmptyCell(pub usize);

/// Measures and codes every group of a tile. Plane `p` of lanes `64 * run ..` of a group is the word
/// `(group * runs + run) * 8 + p`, most significant plane first; lanes past the last are zero bits.
pub(crate) fn split(tile: &Matrix<'_>, params: &mut [Params], words: &mut [u64]) {
    let size = tile.size();
    words[..size.words()].fill(0);
    for (group, params) in params.iter_mut().enumerate().take(size.groups) {
        let row = tile.row(group);
        *params = Params::measure(row);
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        for (lane, &bits) in row.iter().enumerate() {
            let code = cells.code(bf16::value(bits));
            for plane in 0..8 {
                let bit = u64::from(code >> (7 - plane) & 1);
                words[(group * size.runs() + lane / 64) * 8 + plane] |= bit << (lane % 64);
            }
        }
    }
}

/// Reconstructs every group from the planes it has, `widths` of them; the words of the others are anything. Leaves
/// escaped groups alone.
pub(crate) fn merge(params: &[Params], widths: &[u8], words: &[u64], out: &mut MatrixMut<'_>) {
    let size = out.size();
    for (group, (params, width)) in params.iter().zip(widths).enumerate().take(size.groups) {
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        for (lane, bits) in out.row(group).iter_mut().enumerate() {
            let code = code_of(words, size, group, lane);
            *bits = cells.midpoint(code, u32::from(*width));
        }
    }
}

/// Appends what the eight planes leave of every group.
pub(crate) fn encode_tail(tile: &Matrix<'_>, a: &mut BitWriter<'_>, b: &mut BitWriter<'_>) {
    let size = tile.size();
    for group in 0..size.groups {
        let row = tile.row(group);
        let params = Params::measure(row);
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        let coded = |&bits: &u16| {
            let rest = cells.rest(cells.code(bf16::value(bits)));
            let index = bf16::ordinal(bits) - rest.first;
            let long = index >= rest.short();
            let sum = index.wrapping_add(rest.short());
            let value = if long { sum >> 1 } else { index };
            (rest.bits(), value, long.then_some(sum & 1))
        };
        let coded: Vec<_> = row.iter().map(coded).collect();
        for plane in 0..15 {
            for (width, value, _) in &coded {
                if *width > plane {
                    a.put(u64::from(value >> plane & 1), 1);
                }
            }
        }
        for extra in coded.iter().filter_map(|(_, _, extra)| *extra) {
            b.put(u64::from(extra), 1);
        }
    }
}

/// Restores every group from all its words and the tail's sections; leaves escaped groups alone.
pub(crate) fn decode_tail(
    params: &[Params],
    words: &[u64],
    (a, b): (&mut BitReader<'_>, &mut BitReader<'_>),
    out: &mut MatrixMut<'_>,
) -> Result<(), EmptyCell> {
    let size = out.size();
    for (group, params) in params.iter().enumerate().take(size.groups) {
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        let rest_of = |lane| cells.rest(code_of(words, size, group, lane));
        let rests: Vec<Rest> = (0..size.lanes).map(rest_of).collect();
        if rests.iter().any(|rest| rest.count == 0) {
            return Err(EmptyCell(group));
        }
        let mut values = vec![0u16; size.lanes];
        for plane in 0..15 {
            for (value, rest) in values.iter_mut().zip(&rests) {
                if rest.bits() > plane {
                    *value |= u16::from(a.take(1) & 1 == 1) << plane;
                }
            }
        }
        for ((bits, value), rest) in out.row(group).iter_mut().zip(values).zip(rests) {
            let index = if value >= rest.short() {
                let extra = u16::from(b.take(1) & 1 == 1);
                value
                    .wrapping_mul(2)
                    .wrapping_add(extra)
                    .wrapping_sub(rest.short())
            } else {
                value
            };
            *bits = bf16::from_ordinal(rest.first.wrapping_add(index));
        }
    }
    Ok(())
}

/// A lane's code.
fn code_of(words: &[u64], size: Size, group: usize, lane: usize) -> u8 {
    let planes = &words[(group * size.runs() + lane / 64) * 8..][..8];
    planes.iter().fold(0, |code, word| {
        code << 1 | u8::from(word >> (lane % 64) & 1 == 1)
    })
}
