//! What a launch is told.

use lynx_kernels::{BLOCK_TOKENS, Kind, Tile, UnitPlan};

use crate::{Block, Extent, Extents, Pages, PagesError, Plan, Run, extents};

/// A launch over any number of units that differ in their memory only: layers of one token range, or ranges of the same
/// length and place within their pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    plan: Plan,
    kind: Kind,
    channels: usize,
    whole: bool,
    /// Of the head, without escaped groups.
    head_bytes: usize,
}

/// A unit that the kernels can't take; the CPU codec can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The pages.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// V heads are read by four lanes, 8 channels each.
    #[error("V heads of {0} channels can't be coded on a GPU: they need a multiple of 32")]
    Channels(usize),
    /// The number of steps.
    #[error("{wanted} steps were to be coded, but the plan has 1 to {planned}")]
    Steps {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        planned: usize,
    },
    /// The unit is larger than the kernels' numbers.
    #[error("the unit has more blocks, raw runs or bytes than one launch can be told of")]
    TooLarge,
}

impl Launch {
    /// The launch that splits units of `plan` (with all its steps), or merges their first `steps`.
    ///
    /// # Errors
    /// Where the kernels can't take the unit or its pages.
    pub fn new(plan: &UnitPlan, pages: &Pages, steps: usize) -> Result<Self, LaunchError> {
        pages.check()?;
        let (shape, kind) = (plan.shape(), plan.kind());
        if kind == Kind::V && !shape.head_dim.is_multiple_of(32) {
            return Err(LaunchError::Channels(shape.head_dim));
        }
        if steps == 0 || steps > plan.steps() {
            return Err(LaunchError::Steps {
                wanted: steps,
                planned: plan.steps(),
            });
        }
        let mut told = Plan {
            page_stride: pages.page_stride,
            token_stride: pages.token_stride,
            head_stride: pages.head_stride,
            page_shift: pages.tokens.trailing_zeros(),
            heads: small(shape.kv_heads)?,
            steps: small(steps)?,
            anchor: u32::from(plan.cuts().v()),
            planes: u32::from(plan.cuts().width(Kind::V, steps).eighths() / 8),
            ..Plan::default()
        };
        told.ends = ends(plan);
        let start = pages.start(plan.tokens().start);
        let all_whole = place_blocks(plan, start, &mut told)?;
        let none_raw = place_runs(plan, start, &mut told)?;
        extents::leave_out(&mut told);
        let params =
            plan.head_bytes() - told.raw_tokens as usize * shape.kv_heads * shape.head_dim * 2;
        told.param_bytes = small(params)?;
        Ok(Self {
            plan: told,
            kind,
            channels: shape.head_dim,
            whole: all_whole && none_raw,
            head_bytes: plan.head_bytes(),
        })
    }

    /// The kernels' first argument.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether a build for whole blocks will do: every tile has 64 tokens and none is raw.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Blocks of threads for `units` units: (heads, blocks of tokens, units). Builds for any tokens have one row more, which
    /// copies the raw ones.
    pub fn grid(&self, units: u32) -> [u32; 3] {
        let rows = self.plan.blocks + u32::from(!self.whole);
        [self.plan.heads, rows, units]
    }

    /// As [`Self::grid`], for the kernels that copy escaped groups.
    pub fn escape_grid(&self, units: u32) -> [u32; 3] {
        [self.plan.heads, self.plan.blocks, units]
    }

    /// Keys or values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Channels of a head.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        match self.kind {
            Kind::K => self.channels.next_multiple_of(32),
            Kind::V if self.channels <= 64 => 64,
            Kind::V if self.channels <= 128 => 128,
            Kind::V => 256,
        }
    }

    /// What of the segments' checksums a split or merge leaves out, for `lynx_sum` to add after it; `None` for nothing.
    /// `head_bytes` is the head's length where a merge has one with escaped groups; `with_tail` adds a tail that
    /// `lynx_tail` made before.
    ///
    /// # Errors
    /// Where the segments are longer than the kernels' numbers.
    pub fn left_out(
        &self,
        head_bytes: Option<usize>,
        with_tail: bool,
    ) -> Result<Option<Extents>, LaunchError> {
        let head_bytes = small(head_bytes.unwrap_or(self.head_bytes))?;
        let mut found = extents::left_out(&self.plan, (self.kind, self.channels), head_bytes)
            .ok_or(LaunchError::TooLarge)?;
        found.extend(with_tail.then_some(Extent::WHOLE_TAIL));
        if found.is_empty() {
            return Ok(None);
        }
        Extents::new(&found).map(Some).ok_or(LaunchError::TooLarge)
    }

    /// K: which step each 16 bytes of a tile's words belong to, four bytes a thread; empty for V.
    pub fn owners(&self) -> Vec<u8> {
        let Kind::K = self.kind else {
            return Vec::new();
        };
        let threads = self.threads();
        let owner = |unit: usize| {
            let step = self
                .plan
                .ends
                .iter()
                .position(|end| *end as usize > unit * 2);
            step.and_then(|end| u8::try_from(end - 1).ok())
                .unwrap_or(u8::MAX)
        };
        (0..threads * 4)
            // A thread's are 32 apart, a warp's 128 in a row.
            .map(|i| owner(i / 128 * 128 + i % 4 * 32 + i / 4 % 32))
            .collect()
    }
}

/// Words of a K tile before each step, and after the last.
fn ends(plan: &UnitPlan) -> [u32; 9] {
    let channels = u32::try_from(plan.shape().head_dim).unwrap_or(u32::MAX);
    std::array::from_fn(|steps| {
        channels * u32::from(plan.cuts().width(Kind::K, steps).eighths()) / 8
    })
}

/// Fills in the blocks; returns whether all are whole.
fn place_blocks(plan: &UnitPlan, start: u32, told: &mut Plan) -> Result<bool, LaunchError> {
    let mut before = 0;
    let mut whole = true;
    let first_heads = plan.tiles().filter(|tile| tile.head == 0);
    for Tile {
        block,
        first,
        tokens,
        ..
    } in first_heads
    {
        let of_tile = match plan.kind() {
            Kind::K => small(tokens.div_ceil(8))?,
            Kind::V => small(tokens)?,
        };
        let place = told
            .block
            .get_mut(told.blocks as usize)
            .ok_or(LaunchError::TooLarge)?;
        *place = Block {
            position: small(block * BLOCK_TOKENS + first)? - start,
            tokens: small(tokens)?,
            before,
            aligned: alignment(plan.kind(), before, of_tile, told.ends),
        };
        before += of_tile * told.heads;
        told.blocks += 1;
        whole &= tokens == BLOCK_TOKENS;
    }
    Ok(whole && told.blocks > 0)
}

/// [`Block::MOVES`] and [`Block::ADDS`] of a block with `before` bytes of words (K) or tokens (V) before it.
fn alignment(kind: Kind, before: u32, of_tile: u32, ends: [u32; 9]) -> u32 {
    match kind {
        Kind::K if is_aligned(before, of_tile, ends) => Block::MOVES | Block::ADDS,
        Kind::V if before.is_multiple_of(2) && of_tile.is_multiple_of(2) => Block::ADDS,
        _ => 0,
    }
}

/// Whether every piece of every head starts at a multiple of 16 bytes, has whole units of 16 and words of 8.
fn is_aligned(before: u32, word_bytes: u32, ends: [u32; 9]) -> bool {
    let even = ends.iter().all(|end| end.is_multiple_of(2));
    let placed = ends
        .windows(2)
        .all(|pair| ((pair[1] - pair[0]) * before).is_multiple_of(16));
    word_bytes == 8 && even && placed
}

/// Fills in the raw tokens; returns whether there are none.
fn place_runs(plan: &UnitPlan, start: u32, told: &mut Plan) -> Result<bool, LaunchError> {
    for run in plan.raw_tokens() {
        let place = told
            .run
            .get_mut(told.runs as usize)
            .ok_or(LaunchError::TooLarge)?;
        *place = Run {
            position: run.start - start,
            tokens: run.end - run.start,
        };
        told.runs += 1;
        told.raw_tokens += run.end - run.start;
    }
    Ok(told.runs == 0)
}

fn small(number: usize) -> Result<u32, LaunchError> {
    u32::try_from(number).map_err(|_| LaunchError::TooLarge)
}
