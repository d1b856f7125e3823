//! Weight matrices, packed for the kernels and still quantised.
//!
//! Decoding one token reads every weight once, so the memory they take is what bounds it: codes stay codes, and become floats
//! in registers. A matrix is cut into panels of 64 outputs. Within a panel the inputs follow each other, and for each input
//! the codes of all 64 outputs lie together, so that a kernel multiplies one input with 64 weights at a time.

mod pack;

#[cfg(test)]
mod tests;

use crate::panels::PANEL;
use crate::simd::{LANES, Simd};
use crate::tile::Weights;

pub(crate) use pack::FileRows;
pub use pack::PackError;

/// A matrix of `outputs` x `inputs` weights; `inputs` is a multiple of 64.
#[derive(Debug)]
pub(crate) struct Matrix {
    outputs: usize,
    inputs: usize,
    pub(super) store: Store,
}

/// The weights of all panels: `[panel][input][64 outputs]`.
#[derive(Debug)]
pub(crate) enum Store {
    /// 4-bit codes. An entry holds two inputs: bits `16 (input % 2) + 4 j` up of word `i` are the code of output `16 j + i`.
    Nibbles(Vec<[u32; LANES]>, Scales),
    /// 8-bit codes, of which 32 share a scale.
    Bytes32(Vec<[i8; PANEL]>, Scales),
    /// 8-bit codes, of which 16 share a scale.
    Bytes16(Vec<[i8; PANEL]>, Scales),
    /// 16-bit floats.
    F16(Vec<[u16; PANEL]>),
    /// The upper halves of 32-bit floats.
    Bf16(Vec<[u16; PANEL]>),
    /// 32-bit floats.
    F32(Vec<[f32; PANEL]>),
}

/// What turns codes into weights: a weight is `scale * code + offset`.
#[derive(Debug)]
pub(crate) struct Scales {
    scales: Table,
    /// None where all offsets are zero.
    offsets: Option<Table>,
}

/// One number per group and output: `[panel][group][64 outputs]`.
#[derive(Debug)]
enum Table {
    /// All of them are 16-bit floats.
    Half(Vec<[u16; PANEL]>),
    /// Some are not.
    Single(Vec<[f32; PANEL]>),
}

impl Matrix {
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many panels there are; the last one may have outputs that do not exist, with weights of zero.
    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// The memory that the weights take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.store {
            Store::Nibbles(words, scales) => size_of_val(words.as_slice()) + scales.bytes(),
            Store::Bytes32(codes, scales) | Store::Bytes16(codes, scales) => {
                size_of_val(codes.as_slice()) + scales.bytes()
            }
            Store::F16(bits) | Store::Bf16(bits) => size_of_val(bits.as_slice()),
            Store::F32(floats) => size_of_val(floats.as_slice()),
        }
    }
}

impl Scales {
    fn bytes(&self) -> usize {
        self.scales.bytes() + self.offsets.as_ref().map_or(0, Table::bytes)
    }

    #[inline(always)]
    fn load<S: Simd>(&self, s: S, entry: usize) -> ScaleLanes<S> {
        ScaleLanes {
            scales: self.scales.load(s, entry),
            offsets: match &self.offsets {
                Some(offsets) => offsets.load(s, entry),
                None => [s.splat(0.0); 4],
            },
        }
    }
}

impl Table {
    fn bytes(&self) -> usize {
        match self {
            Self::Half(rows) => size_of_val(rows.as_slice()),
            Self::Single(rows) => size_of_val(rows.as_slice()),
        }
    }

    #[inline(always)]
    fn load<S: Simd>(&self, s: S, entry: usize) -> [S::F; 4] {
        let mut lanes = [s.splat(0.0); 4];
        match self {
            Self::Half(rows) => {
                for (lane, bits) in lanes.iter_mut().zip(rows[entry].as_chunks().0) {
                    *lane = s.widen_f16(bits);
                }
            }
            Self::Single(rows) => {
                for (lane, floats) in lanes.iter_mut().zip(rows[entry].as_chunks().0) {
                    *lane = s.load(floats);
                }
            }
        }
        lanes
    }
}

/// The scales and offsets of a group, for 64 outputs.
#[derive(Clone, Copy)]
pub(crate) struct ScaleLanes<S: Simd> {
    scales: [S::F; 4],
    offsets: [S::F; 4],
}

/// Sixteen weights of 64 inputs: a part of a panel, as the tile kernel reads it.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles<'a> {
    pub(crate) words: &'a [[u32; LANES]; PANEL / 2],
    pub(crate) scales: &'a Scales,
    /// The first group's place in the scales.
    pub(crate) entry: usize,
}

impl Weights for Nibbles<'_> {
    const GROUP: usize = 32;
    const STEP: usize = 2;
    type Scales<S: Simd> = ScaleLanes<S>;

    #[inline(always)]
    fn scales<S: Simd>(self, s: S, group: usize) -> ScaleLanes<S> {
        self.scales.load(s, self.entry + group)
    }

    #[inline(always)]
    fn lanes<S: Simd>(self, s: S, scales: &ScaleLanes<S>, input: usize, lane: usize) -> S::F {
        let words = s.words(&self.words[input / 2]);
        let codes = s.nibble(words, input % 2 * 4 + lane);
        s.mul_add(scales.scales[lane], codes, scales.offsets[lane])
    }
}

/// 64 inputs of a panel of 8-bit codes, of which `GROUP` share a scale.
#[derive(Clone, Copy)]
pub(crate) struct ByteCodes<'a, const GROUP: usize> {
    pub(crate) codes: &'a [[i8; PANEL]; PANEL],
    pub(crate) scales: &'a Scales,
    /// The first group's place in the scales.
    pub(crate) entry: usize,
}

impl<const GROUP: usize> Weights for ByteCodes<'_, GROUP> {
    const GROUP: usize = GROUP;
    const STEP: usize = 1;
    type Scales<S: Simd> = ScaleLanes<S>;

    #[inline(always)]
    fn scales<S: Simd>(self, s: S, group: usize) -> ScaleLanes<S> {
        self.scales.load(s, self.entry + group)
    }

    #[inline(always)]
    fn lanes<S: Simd>(self, s: S, scales: &ScaleLanes<S>, input: usize, lane: usize) -> S::F {
        let codes = s.widen_i8(&self.codes[input].as_chunks().0[lane]);
        s.mul_add(scales.scales[lane], codes, scales.offsets[lane])
    }
}

/// 64 inputs of a panel of 16-bit floats.
#[derive(Clone, Copy)]
pub(crate) struct Halves<'a>(pub(crate) &'a [[u16; PANEL]; PANEL]);

impl Weights for Halves<'_> {
    const GROUP: usize = 1;
    const STEP: usize = 1;
    type Scales<S: Simd> = ();

    #[inline(always)]
    fn scales<S: Simd>(self, _: S, _: usize) {}

    #[inline(always)]
    fn lanes<S: Simd>(self, s: S, (): &(), input: usize, lane: usize) -> S::F {
        s.widen_f16(&self.0[input].as_chunks().0[lane])
    }
}

/// Up to 64 inputs of BF16: weights, or the keys or values of a KV block.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Rows<'a> {
    /// Row `stride * i` belongs to input `i`.
    pub(crate) rows: &'a [[u16; PANEL]],
    pub(crate) stride: usize,
    pub(crate) inputs: usize,
}

impl Weights for Bf16Rows<'_> {
    const GROUP: usize = 1;
    const STEP: usize = 1;
    type Scales<S: Simd> = ();

    #[inline(always)]
    fn inputs(self) -> usize {
        self.inputs
    }

    #[inline(always)]
    fn scales<S: Simd>(self, _: S, _: usize) {}

    #[inline(always)]
    fn lanes<S: Simd>(self, s: S, (): &(), input: usize, lane: usize) -> S::F {
        s.widen_bf16(&self.rows[input * self.stride].as_chunks().0[lane])
    }
}

/// 64 inputs of a panel of 32-bit floats.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a>(pub(crate) &'a [[f32; PANEL]; PANEL]);

impl Weights for Floats<'_> {
    const GROUP: usize = 1;
    const STEP: usize = 1;
    type Scales<S: Simd> = ();

    #[inline(always)]
    fn scales<S: Simd>(self, _: S, _: usize) {}

    #[inline(always)]
    fn lanes<S: Simd>(self, s: S, (): &(), input: usize, lane: usize) -> S::F {
        s.load(&self.0[input].as_chunks().0[lane])
    }
}
