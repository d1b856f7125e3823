//! A unit's values to its head and steps.

use super::head::{source_matrix, write_escapes, write_params, write_raw};
use super::{Scratch, Simd, UnitBuffer, order_of, simd, words};
use crate::LayerOrder;
use crate::plan::{PARAM_BYTES, UnitPlan};
use crate::rows::TileSource;

pub(super) fn split(
    level: Simd,
    plan: &UnitPlan,
    order: &LayerOrder,
    source: &impl TileSource,
    out: &mut UnitBuffer,
) {
    // Everything is overwritten, so a buffer used before isn't cleared first.
    out.head.resize(plan.head_bytes(), 0);
    out.steps.resize_with(plan.steps(), Vec::new);
    for (step, bytes) in out.steps.iter_mut().enumerate() {
        bytes.resize(plan.step_bytes(step), 0);
    }
    out.tail.clear();
    let params_end = plan.param_bytes();
    write_raw(plan, source, &mut out.head[params_end..]);

    let mut scratch = Scratch::new();
    let mut params_at = 0;
    let mut step_at = [0; 8];
    for tile in plan.tiles() {
        let size = plan.size(tile.tokens);
        let matrix = source_matrix(plan, tile, size, source);
        let params = &mut scratch.params[..size.groups];
        simd::split(level, &matrix, params, &mut scratch.words);

        write_params(
            params,
            &mut out.head[params_at..][..size.groups * PARAM_BYTES],
        );
        params_at += size.groups * PARAM_BYTES;
        write_escapes(params, &matrix, &mut out.head);
        let order = order_of(plan, order, tile.head);
        for (step, (bytes, at)) in out.steps.iter_mut().zip(&mut step_at).enumerate() {
            let range = plan.step_words(size, step);
            let len = range.len() * size.word_bytes();
            words::pack(order, range, size, &scratch.words, &mut bytes[*at..][..len]);
            *at += len;
        }
    }
}
