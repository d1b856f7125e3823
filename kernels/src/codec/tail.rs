//! The exact tail: a table of section lengths, then every tile's sections A and B.

use super::head::{HeadReader, sink_matrix, source_matrix};
use super::merge::StepReader;
use super::{MergeError, Scratch, Sections, Segment, Simd, UnitBuffer, order_of, simd, words};
use crate::LayerOrder;
use crate::bits::BitReader;
use crate::plan::{TAIL_ENTRY_BYTES, UnitPlan};
use crate::rows::{Size, TileSink, TileSource};

pub(super) fn encode(level: Simd, plan: &UnitPlan, source: &impl TileSource, tail: &mut Vec<u8>) {
    let mut sections = Sections::new();
    tail.clear();
    tail.resize(plan.tiles().count() * TAIL_ENTRY_BYTES, 0);
    for (index, tile) in plan.tiles().enumerate() {
        let matrix = source_matrix(plan, tile, plan.size(tile.tokens), source);
        let (mut a, mut b) = sections.writers();
        simd::encode_tail(level, &matrix, &mut a, &mut b);
        let (a, b) = (a.finish(), b.finish());
        append(&sections.a, a, tail);
        append(&sections.b, b, tail);
        let entry = &mut tail[index * TAIL_ENTRY_BYTES..][..TAIL_ENTRY_BYTES];
        entry[..2].copy_from_slice(&length(a).to_le_bytes());
        entry[2..].copy_from_slice(&length(b).to_le_bytes());
    }
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("a section has at most 15 bits for each of 16384 elements")
}

fn append(words: &[u64], bytes: usize, tail: &mut Vec<u8>) {
    let start = tail.len();
    let whole = bytes.next_multiple_of(8);
    tail.resize(start + whole, 0);
    words::store(&words[..whole / 8], &mut tail[start..]);
    tail.truncate(start + bytes);
}

pub(super) fn decode(
    level: Simd,
    plan: &UnitPlan,
    order: &LayerOrder,
    unit: &UnitBuffer,
    sink: &mut impl TileSink,
) -> Result<(), MergeError> {
    let mut head = HeadReader::new(plan, &unit.head)?;
    let mut steps = StepReader::new(plan, unit, plan.steps())?;
    let mut tail = TailReader::new(plan, &unit.tail)?;
    let mut scratch = Scratch::new();
    let mut sections = Sections::new();
    for (index, tile) in plan.tiles().enumerate() {
        let size = plan.size(tile.tokens);
        steps.words(
            plan,
            size,
            order_of(plan, order, tile.head),
            &mut scratch.words,
        );
        let params = &mut scratch.params[..size.groups];
        head.params(params)?;
        let (a_bytes, b_bytes) = tail.sections(index, size, &mut sections)?;
        let (mut a, mut b) = (BitReader::new(&sections.a), BitReader::new(&sections.b));
        let mut matrix = sink_matrix(plan, tile, size, sink);
        simd::decode_tail(level, params, &scratch.words, (&mut a, &mut b), &mut matrix).map_err(
            |cell| MergeError::EmptyCell {
                tile: index,
                group: cell.0,
            },
        )?;
        if !a.ended_at(a_bytes) || !b.ended_at(b_bytes) {
            return Err(MergeError::Sections { tile: index });
        }
        head.escapes(params, &mut matrix)?;
    }
    tail.finish()?;
    head.finish(plan, sink)
}

/// A tail that is being read, tile after tile.
struct TailReader<'a> {
    table: &'a [u8],
    rest: &'a [u8],
    len: usize,
}

impl<'a> TailReader<'a> {
    fn new(plan: &UnitPlan, tail: &'a [u8]) -> Result<Self, MergeError> {
        let expected = plan.tiles().count() * TAIL_ENTRY_BYTES;
        let (table, rest) = tail.split_at_checked(expected).ok_or(MergeError::Length {
            segment: Segment::Tail,
            expected,
            found: tail.len(),
        })?;
        Ok(Self {
            table,
            rest,
            len: tail.len(),
        })
    }

    /// Copies the sections of tile `index` out, where reading past their ends is harmless; returns their lengths.
    fn sections(
        &mut self,
        index: usize,
        size: Size,
        out: &mut Sections,
    ) -> Result<(usize, usize), MergeError> {
        let entry = self.table.as_chunks::<TAIL_ENTRY_BYTES>().0[index];
        let a = usize::from(u16::from_le_bytes([entry[0], entry[1]]));
        let b = usize::from(u16::from_le_bytes([entry[2], entry[3]]));
        let elements = size.groups * size.lanes;
        if a > (elements * 15).div_ceil(8) || b > elements.div_ceil(8) {
            return Err(MergeError::Sections { tile: index });
        }
        let Some((sections, rest)) = self.rest.split_at_checked(a + b) else {
            let missing = a + b - self.rest.len();
            return Err(self.length(self.len + missing));
        };
        self.rest = rest;
        words::load(&sections[..a], &mut out.a);
        words::load(&sections[a..], &mut out.b);
        Ok((a, b))
    }

    fn finish(self) -> Result<(), MergeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.length(self.len - self.rest.len()))
        }
    }

    fn length(&self, expected: usize) -> MergeError {
        MergeError::Length {
            segment: Segment::Tail,
            expected,
            found: self.len,
        }
    }
}
