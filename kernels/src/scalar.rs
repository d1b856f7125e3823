//! The truth: every kernel one element at a time, as the format is written down. The SIMD levels must be bit-equal to this.

use crate::bf16;
use crate::bits::{BitReader, BitWriter};
use crate::group::{Params, Rest};
use crate::profile::Place;
use crate::rows::{Matrix, MatrixMut, Size};

/// A cell without BF16 values: codes that no encoder makes. Holds the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EmptyCell(pub usize);

/// Measures and codes every group of a tile. Word `place * runs + run` holds lanes `64 * run ..` of a plane.
pub(crate) fn split(
    tile: &Matrix<'_>,
    place: &Place<'_>,
    params: &mut [Params],
    words: &mut [u64],
) {
    let size = tile.size();
    words[..8 * size.words()].fill(0);
    for (group, params) in params.iter_mut().enumerate().take(size.groups) {
        let row = tile.row(group);
        *params = Params::measure(row);
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        for (lane, &bits) in row.iter().enumerate() {
            let code = cells.code(bf16::value(bits));
            for (plane, &place) in place.of(group).iter().enumerate() {
                let bit = u64::from(code >> (7 - plane) & 1);
                words[usize::from(place) * size.runs() + lane / 64] |= bit << (lane % 64);
            }
        }
    }
}

/// Reconstructs every group from its words among the first `present`; leaves escaped groups alone.
pub(crate) fn merge(
    params: &[Params],
    place: &Place<'_>,
    words: &[u64],
    present: usize,
    out: &mut MatrixMut<'_>,
) {
    let size = out.size();
    for (group, params) in params.iter().enumerate().take(size.groups) {
        if params.is_escape() {
            continue;
        }
        let cells = params.cells();
        let places = place.of(group);
        let width = places
            .iter()
            .take_while(|place| usize::from(**place) < present)
            .count();
        for (lane, bits) in out.row(group).iter_mut().enumerate() {
            let code = code_of(&places[..width], words, size, lane);
            #[expect(clippy::cast_possible_truncation, reason = "at most 8")]
            let width = width as u32;
            *bits = cells.midpoint(code, width);
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
        let coded = |bits: u16| {
            let rest = cells.rest(cells.code(bf16::value(bits)));
            let index = bf16::ordinal(bits) - rest.first;
            let long = index >= rest.short();
            let sum = index.wrapping_add(rest.short());
            (
                rest.bits(),
                if long { sum >> 1 } else { index },
                long.then_some(sum & 1),
            )
        };
        for plane in 0..15 {
            for (width, value, _) in row.iter().map(|&bits| coded(bits)) {
                if width > plane {
                    a.put(u64::from(value >> plane & 1), 1);
                }
            }
        }
        for (_, _, extra) in row.iter().map(|&bits| coded(bits)) {
            if let Some(extra) = extra {
                b.put(u64::from(extra), 1);
            }
        }
    }
}

/// Restores every group from all its words and the tail's sections; leaves escaped groups alone.
pub(crate) fn decode_tail(
    params: &[Params],
    place: &Place<'_>,
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
        let places = place.of(group);
        let rest_of = |lane| cells.rest(code_of(&places, words, size, lane));
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

/// The top bits of a lane's code, from the words at `places`; the bits below are zero.
fn code_of(places: &[u16], words: &[u64], size: Size, lane: usize) -> u8 {
    let planes = places.iter().enumerate();
    planes.fold(0, |code, (plane, &place)| {
        let word = words[usize::from(place) * size.runs() + lane / 64];
        code | (u8::from(word >> (lane % 64) & 1 == 1) << (7 - plane))
    })
}
