//! Matrix products, a panel of outputs at a time.

use crate::panels::{PANEL, Panels, Row};
use crate::simd::{Kernel, Simd};
use crate::tile::Weights;
use crate::tile::{multiply, widen};
use crate::weights::{Bf16Rows, ByteCodes, Floats, Halves, Matrix, Nibbles, Store};

/// Up to so many rows, weights are turned into floats in registers; for more they are written out once and read again.
const FUSED: usize = 4;

/// One panel of `y = x * matrix`, for some of the rows.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) panel: usize,
    pub(crate) x: &'a Panels,
    /// The first row of `x`; there are as many as in `y`.
    pub(crate) first_row: usize,
    pub(crate) y: &'a mut [Row],
    /// Room for 64 inputs' weights.
    pub(crate) wide: &'a mut [Row; PANEL],
}

impl Kernel for Product<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.y.fill([0.0; PANEL]);
        let parts = self.matrix.inputs() / PANEL;
        for part in 0..parts {
            let first = part * self.x.rows() + self.first_row;
            let x = &self.x.data()[first..first + self.y.len()];
            let wide = &mut *self.wide;
            // Where the part's inputs and, at a given number of inputs per group, its scales begin.
            let inputs = (self.panel * parts + part) * PANEL;
            match &self.matrix.store {
                Store::Nibbles(words, scales) => {
                    let words = chunk(words, inputs / 2);
                    let entry = inputs / 32;
                    apply(
                        s,
                        Nibbles {
                            words,
                            scales,
                            entry,
                        },
                        x,
                        self.y,
                        wide,
                    );
                }
                Store::Bytes32(codes, scales) => {
                    let codes = chunk(codes, inputs);
                    let entry = inputs / 32;
                    apply(
                        s,
                        ByteCodes::<32> {
                            codes,
                            scales,
                            entry,
                        },
                        x,
                        self.y,
                        wide,
                    );
                }
                Store::Bytes16(codes, scales) => {
                    let codes = chunk(codes, inputs);
                    let entry = inputs / 16;
                    apply(
                        s,
                        ByteCodes::<16> {
                            codes,
                            scales,
                            entry,
                        },
                        x,
                        self.y,
                        wide,
                    );
                }
                Store::F16(bits) => apply(s, Halves(chunk(bits, inputs)), x, self.y, wide),
                Store::Bf16(bits) => {
                    let rows = chunk::<_, PANEL>(bits, inputs);
                    let weights = Bf16Rows {
                        rows,
                        stride: 1,
                        inputs: PANEL,
                    };
                    apply(s, weights, x, self.y, wide);
                }
                Store::F32(floats) => multiply(s, Floats(chunk(floats, inputs)), x, self.y),
            }
        }
    }
}

fn chunk<T, const N: usize>(all: &[T], first: usize) -> &[T; N] {
    all[first..]
        .first_chunk()
        .expect("panels consist of whole parts of 64 inputs")
}

#[inline(always)]
fn apply<S: Simd, W: Weights>(s: S, weights: W, x: &[Row], y: &mut [Row], wide: &mut [Row; PANEL]) {
    if y.len() <= FUSED {
        multiply(s, weights, x, y);
    } else {
        widen(s, weights, wide);
        multiply(s, Floats(wide), x, y);
    }
}

/// `gate * sigmoid(gate) * up`, in place of `gate`.
pub(crate) struct SwiGlu<'a> {
    pub(crate) gate: &'a mut [Row],
    pub(crate) up: &'a [Row],
}

impl Kernel for SwiGlu<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let one = s.splat(1.0);
        let gate = self.gate.as_flattened_mut().as_chunks_mut().0;
        let up = self.up.as_flattened().as_chunks().0;
        for (gate, up) in gate.iter_mut().zip(up) {
            let x = s.load(gate);
            let denominator = s.add(one, crate::simd::exp(s, s.sub(s.splat(0.0), x)));
            s.store(s.mul(s.div(x, denominator), s.load(up)), gate);
        }
    }
}
