//! Root-mean-square normalisation.

use crate::panels::{PANEL, Panels};
use crate::simd::LANES;

/// Divides each row by the root of its mean square, and multiplies it with the weights.
///
/// The squares are summed up in sixteen sums, which are added in a fixed order. Plain code does this on every level alike: the
/// compiler may use wide registers for it, but neither fuses nor reorders.
pub(super) fn normalize(x: &Panels, weights: &[f32], epsilon: f32, out: &mut Panels) {
    let columns = weights.len() as f32;
    for row in 0..x.rows() {
        let mut sums = [0.0_f32; LANES];
        for part in x.whole_row(row) {
            for lanes in part.as_chunks::<LANES>().0 {
                for (sum, value) in sums.iter_mut().zip(lanes) {
                    *sum += value * value;
                }
            }
        }
        let mean = crate::simd::fold(sums, |a, b| a + b) / columns;
        let scale = 1.0 / (mean + epsilon).sqrt();
        for (panel, weights) in weights.as_chunks::<PANEL>().0.iter().enumerate() {
            let x = x.row(panel, row);
            let out = out.row_mut(panel, row);
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weights) {
                *out = x * scale * weight;
            }
        }
    }
}
