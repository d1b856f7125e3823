//! Which pieces of a unit's segments no tile adds up the checksum of: raw tokens, and blocks whose pieces aren't whole 64-bit
//! words. Such blocks are a prompt's ends, so that they lie in one or two runs.

use core::ops::Range;

use lynx_kernels::Kind;

use crate::{Block, Extent, Plan};

/// As many runs as [`crate::Extents`] has room for, with a piece of every segment each.
const MAX_RUNS: usize = 2;

/// Where there are more runs of blocks that don't add than there is room for, takes all from the first to the last of them.
pub(crate) fn leave_out(plan: &mut Plan) {
    let runs = runs(plan);
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return;
    };
    if runs.len() > MAX_RUNS {
        for block in plan.block.iter_mut().take(last.end).skip(first.start) {
            block.aligned &= !Block::ADDS;
        }
    }
}

/// The runs of blocks that don't add.
fn runs(plan: &Plan) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let blocks = plan.block.iter().take(plan.blocks as usize).enumerate();
    for (i, _) in blocks.filter(|(_, block)| block.aligned & Block::ADDS == 0) {
        match runs.last_mut() {
            Some(run) if run.end == i => run.end += 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

/// The pieces that are left out of the head, of `head_bytes`, and of the plan's steps; `None` where a number is too large.
pub(crate) fn left_out(
    plan: &Plan,
    (kind, channels): (Kind, usize),
    head_bytes: u32,
) -> Option<Vec<Extent>> {
    let channels = u32::try_from(channels).ok()?;
    let mut found = Vec::new();
    let mut rest = plan.param_bytes;
    for run in runs(plan) {
        let [from, to] = [run.start, run.end].map(|block| before(plan, kind, block));
        let params = [run.start, run.end].map(|block| match kind {
            Kind::K => block as u64 * u64::from(plan.heads * channels) * 4,
            Kind::V => before(plan, kind, block) * 4,
        });
        if run.end == plan.blocks as usize {
            // What follows may share a word with them.
            rest = u32::try_from(params[0]).ok()?;
        } else {
            found.push(extent(0, params[0], params[1])?);
        }
        for step in 0..plan.steps {
            let bytes = bytes_each(plan, (kind, channels), step);
            found.push(extent(step + 1, from * bytes, to * bytes)?);
        }
    }
    if rest < head_bytes {
        found.push(extent(0, rest.into(), head_bytes.into())?);
    }
    Some(found)
}

/// Bytes of a word (K) or tokens (V) in all tiles before those of a block.
fn before(plan: &Plan, kind: Kind, block: usize) -> u64 {
    let Some(last) = block.checked_sub(1).and_then(|last| plan.block.get(last)) else {
        return 0;
    };
    let of_tile = match kind {
        Kind::K => last.tokens.div_ceil(8),
        Kind::V => last.tokens,
    };
    u64::from(last.before) + u64::from(of_tile) * u64::from(plan.heads)
}

/// What a step has for each of those: words (K), or the bytes of its planes (V).
fn bytes_each(plan: &Plan, (kind, channels): (Kind, u32), step: u32) -> u64 {
    let words = match kind {
        Kind::K => {
            let [end, next] = [step, step + 1].map(|step| plan.ends.get(step as usize));
            next.copied().unwrap_or(0) - end.copied().unwrap_or(0)
        }
        Kind::V => channels / 8 * if step == 0 { plan.anchor } else { 1 },
    };
    words.into()
}

fn extent(segment: u32, from: u64, to: u64) -> Option<Extent> {
    Some(Extent {
        segment,
        from: u32::try_from(from).ok()?,
        bytes: u32::try_from(to - from).ok()?,
    })
}
