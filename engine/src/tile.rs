//! The one multiplication kernel: some rows of 64 inputs times 64 x 64 weights.
//!
//! Every sum is a chain of fused multiply-adds over the inputs in their order, starting from what is already in the output.
//! Six rows at a time keep their 6 x 64 sums in registers; how many rows there are decides only how often a weight is read,
//! never the order of a sum. That is why a token's numbers do not depend on what is computed beside it. Blocking over the
//! inputs, or several partial sums, would be faster for one row and would break exactly that.

use crate::attention::Local as AttentionLocal;
use crate::panels::{PANEL, Row};
use crate::simd::{LANES, Simd};

/// Rows that share a weight in registers.
const TILE: usize = 6;
/// Groups of [`LANES`] outputs in a panel.
const GROUPS: usize = PANEL / LANES;

/// Up to 64 inputs x 64 weights, from whatever they are stored as.
pub(crate) trait Weights: Copy {
    /// How many inputs share scales; a divisor of 64.
    const GROUP: usize;
    /// How many inputs are stored together; a divisor of `GROUP`.
    const STEP: usize;
    /// What is loaded once per group.
    type Scales<S: Simd>: Copy;

    /// How many inputs there are: 64, unless groups and steps are of one input.
    #[inline(always)]
    fn inputs(self) -> usize {
        PANEL
    }

    /// The scales of a group.
    fn scales<S: Simd>(self, s: S, group: usize) -> Self::Scales<S>;

    /// The weights of an input for outputs `16 lane` to `16 lane + 15`.
    fn lanes<S: Simd>(self, s: S, scales: &Self::Scales<S>, input: usize, lane: usize) -> S::F;
}

/// A thread's own working memory.
#[derive(Debug)]
pub(crate) struct Local {
    /// 64 inputs' weights as floats.
    pub(crate) wide: Box<[Row; PANEL]>,
    /// One more result beside the task's own.
    pub(crate) second: Vec<Row>,
    pub(crate) attention: AttentionLocal,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            wide: Box::new([[0.0; PANEL]; PANEL]),
            second: Vec::new(),
            attention: AttentionLocal::default(),
        }
    }
}

/// Writes the weights out as floats, for use with many rows.
#[inline(always)]
pub(crate) fn widen<S: Simd, W: Weights>(s: S, weights: W, wide: &mut [Row; PANEL]) {
    for group in 0..PANEL / W::GROUP {
        let scales = weights.scales(s, group);
        for step in 0..W::GROUP / W::STEP {
            for i in 0..W::STEP {
                let input = group * W::GROUP + step * W::STEP + i;
                for lane in 0..GROUPS {
                    let weights = weights.lanes(s, &scales, input, lane);
                    s.store(weights, &mut wide[input].as_chunks_mut().0[lane]);
                }
            }
        }
    }
}

/// Adds `x * weights` to `y`, row by row; `x` and `y` have as many rows.
#[inline(always)]
pub(crate) fn multiply<S: Simd, W: Weights>(s: S, weights: W, x: &[Row], y: &mut [Row]) {
    let (x_tiles, x_rest) = x.as_chunks::<TILE>();
    let (y_tiles, y_rest) = y.as_chunks_mut::<TILE>();
    for (x, y) in x_tiles.iter().zip(y_tiles) {
        tile(s, weights, x, y);
    }
    rest::<S, W, 1>(s, weights, x_rest, y_rest);
    rest::<S, W, 2>(s, weights, x_rest, y_rest);
    rest::<S, W, 3>(s, weights, x_rest, y_rest);
    rest::<S, W, 4>(s, weights, x_rest, y_rest);
    rest::<S, W, 5>(s, weights, x_rest, y_rest);
}

/// Does the last rows, if there are exactly `T` of them.
#[inline(always)]
fn rest<S: Simd, W: Weights, const T: usize>(s: S, weights: W, x: &[Row], y: &mut [Row]) {
    if let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) {
        tile::<S, W, T>(s, weights, x, y);
    }
}

#[inline(always)]
fn tile<S: Simd, W: Weights, const T: usize>(s: S, weights: W, x: &[Row; T], y: &mut [Row; T]) {
    if S::WIDE {
        sums::<S, W, T, GROUPS>(s, weights, x, y, 0);
    } else {
        for lane in 0..GROUPS {
            sums::<S, W, T, 1>(s, weights, x, y, lane);
        }
    }
}

/// The sums of `T` rows and `L` groups of outputs from `first` on, all in registers.
#[inline(always)]
fn sums<S: Simd, W: Weights, const T: usize, const L: usize>(
    s: S,
    weights: W,
    x: &[Row; T],
    y: &mut [Row; T],
    first: usize,
) {
    let mut sums = [[s.splat(0.0); L]; T];
    for (sums, y) in sums.iter_mut().zip(y.iter()) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = s.load(&y.as_chunks().0[first + lane]);
        }
    }
    let inputs = weights.inputs().min(PANEL);
    for group in 0..inputs / W::GROUP {
        let scales = weights.scales(s, group);
        for step in 0..W::GROUP / W::STEP {
            for i in 0..W::STEP {
                let input = group * W::GROUP + step * W::STEP + i;
                let mut lanes = [s.splat(0.0); L];
                for (lane, weight) in lanes.iter_mut().enumerate() {
                    *weight = weights.lanes(s, &scales, input, first + lane);
                }
                for (sums, x) in sums.iter_mut().zip(x) {
                    let x = s.splat(x[input]);
                    for (sum, &weight) in sums.iter_mut().zip(&lanes) {
                        *sum = s.mul_add(weight, x, *sum);
                    }
                }
            }
        }
    }
    for (sums, y) in sums.iter().zip(y) {
        for (lane, &sum) in sums.iter().enumerate() {
            s.store(sum, &mut y.as_chunks_mut().0[first + lane]);
        }
    }
}
