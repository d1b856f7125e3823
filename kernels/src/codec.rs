//! Splitting units into segments and merging them back.

mod error;
mod head;
mod merge;
mod simd;
mod split;
mod tail;
mod words;

use crate::bits::BitWriter;
use crate::group::Params;
use crate::plan::UnitPlan;
use crate::rows::{TileSink, TileSource};
use crate::shape::MAX_HEAD_DIM;
use crate::{BLOCK_TOKENS, Kind, LayerOrder};

pub use error::{MergeError, Segment};
pub use simd::Simd;
use words::Order;

/// The segments of one unit. Made once and used again, it doesn't allocate: see [`UnitBuffer::reserve`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitBuffer {
    /// Parameters, raw tokens, escaped groups.
    pub head: Vec<u8>,
    /// Code words, most significant first; the first is the anchor's.
    pub steps: Vec<Vec<u8>>,
    /// What makes the values exact.
    pub tail: Vec<u8>,
}

impl UnitBuffer {
    /// Reserves the most that a unit of `plan` can need, the tail included.
    pub fn reserve(&mut self, plan: &UnitPlan) {
        self.steps.resize_with(plan.steps(), Vec::new);
        for index in 0..plan.segments() {
            let bound = plan.segment_bound(index);
            if let Some(bytes) = self.segment_mut(index) {
                bytes.reserve(bound.saturating_sub(bytes.len()));
            }
        }
    }

    /// Segment `index`, in the order head, steps, tail.
    pub fn segment(&self, index: usize) -> Option<&[u8]> {
        match index.checked_sub(1) {
            None => Some(&self.head),
            Some(step) if step == self.steps.len() => Some(&self.tail),
            Some(step) => self.steps.get(step).map(Vec::as_slice),
        }
    }

    /// Segment `index`, to be filled.
    pub fn segment_mut(&mut self, index: usize) -> Option<&mut Vec<u8>> {
        match index.checked_sub(1) {
            None => Some(&mut self.head),
            Some(step) if step == self.steps.len() => Some(&mut self.tail),
            Some(step) => self.steps.get_mut(step),
        }
    }
}

/// The codec at one SIMD level. Stateless and cheap to copy; units may be coded by any number of threads.
///
/// ```
/// use lynx_kernels::{Blocks, Codec, Kind, KvShape, Profile, RawTokens, UnitBuffer, UnitPlan};
///
/// let shape = KvShape { layers: 1, kv_heads: 2, head_dim: 64 };
/// let profile = Profile::uniform(shape)?;
/// let cuts = profile.cuts("4".parse()?);
/// let plan = UnitPlan::new(shape, Kind::K, 0..100, RawTokens::for_prompt(100), cuts)?;
/// let sent = Blocks::new(shape, Kind::K, 0..100);
///
/// let codec = Codec::detect();
/// let mut unit = UnitBuffer::default();
/// codec.split(&plan, profile.layer(0), &sent, &mut unit);
/// codec.encode_tail(&plan, &sent, &mut unit.tail);
///
/// let mut received = Blocks::new(shape, Kind::K, 0..100);
/// codec.merge(&plan, profile.layer(0), &unit, 1, &mut received)?; // the anchor
/// codec.decode_tail(&plan, profile.layer(0), &unit, &mut received)?; // everything, bit for bit
/// assert_eq!(received.data(), sent.data());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    simd: Simd,
}

impl Codec {
    /// The codec at the best level this CPU has.
    pub fn detect() -> Self {
        Self {
            simd: Simd::detect(),
        }
    }

    /// The codec at this level; `None` where the CPU lacks it.
    pub fn with_simd(simd: Simd) -> Option<Self> {
        simd.is_available().then_some(Self { simd })
    }

    /// The level in use.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Splits a unit into its head and all its steps; leaves `out.tail` empty.
    ///
    /// # Panics
    /// Where a block of `source` is smaller than the plan says, or `order` is that of another shape.
    pub fn split(
        &self,
        plan: &UnitPlan,
        order: &LayerOrder,
        source: &impl TileSource,
        out: &mut UnitBuffer,
    ) {
        split::split(self.simd, plan, order, source, out);
    }

    /// Merges the head and the first `steps` steps: raw tokens and escaped groups exactly, everything else at its cells'
    /// midpoints. The other segments are not looked at. On failure some blocks have been written and some have not.
    ///
    /// # Errors
    /// Where a segment's length or content can't come from [`Codec::split`] with this plan.
    ///
    /// # Panics
    /// Where a block of `sink` is smaller than the plan says, or `order` is that of another shape.
    pub fn merge(
        &self,
        plan: &UnitPlan,
        order: &LayerOrder,
        unit: &UnitBuffer,
        steps: usize,
        sink: &mut impl TileSink,
    ) -> Result<(), MergeError> {
        merge::merge(self.simd, plan, order, unit, steps, sink)
    }

    /// Appends nothing but the tail: what the eight planes leave of the values, which are read and coded anew because
    /// that is cheaper than to gather their codes from the steps. `tail` is replaced.
    ///
    /// # Panics
    /// Where a block of `source` is smaller than the plan says.
    pub fn encode_tail(&self, plan: &UnitPlan, source: &impl TileSource, tail: &mut Vec<u8>) {
        tail::encode(self.simd, plan, source, tail);
    }

    /// Restores the unit bit for bit from all its segments, whatever was merged before. On failure some blocks have been
    /// written and some have not.
    ///
    /// # Errors
    /// Where a segment's length or content can't come from [`Codec::split`] and [`Codec::encode_tail`] with this plan.
    ///
    /// # Panics
    /// Where a block of `sink` is smaller than the plan says, or `order` is that of another shape.
    pub fn decode_tail(
        &self,
        plan: &UnitPlan,
        order: &LayerOrder,
        unit: &UnitBuffer,
        sink: &mut impl TileSink,
    ) -> Result<(), MergeError> {
        tail::decode(self.simd, plan, order, unit, sink)
    }
}

/// Groups and lanes of a tile multiply to at most this.
const MAX_ELEMENTS: usize = MAX_HEAD_DIM * BLOCK_TOKENS;
/// 64-bit words of a tile's code words, whichever side is the longer.
const MAX_WORDS: usize = MAX_ELEMENTS * 8 / 64;
/// 64-bit words of section A: 15 bits an element, and one for the writer's unfinished word.
const MAX_A: usize = MAX_ELEMENTS * 15 / 64 + 1;
/// 64-bit words of section B: one bit an element.
const MAX_B: usize = MAX_ELEMENTS / 64 + 1;

/// What one tile needs while it is coded.
struct Scratch {
    params: [Params; MAX_HEAD_DIM],
    words: [u64; MAX_WORDS],
}

impl Scratch {
    fn new() -> Self {
        Self {
            params: [Params::ESCAPE; MAX_HEAD_DIM],
            words: [0; MAX_WORDS],
        }
    }
}

/// What one tile's tail needs while it is coded.
struct Sections {
    a: [u64; MAX_A],
    b: [u64; MAX_B],
}

impl Sections {
    fn new() -> Self {
        Self {
            a: [0; MAX_A],
            b: [0; MAX_B],
        }
    }

    fn writers(&mut self) -> (BitWriter<'_>, BitWriter<'_>) {
        (BitWriter::new(&mut self.a), BitWriter::new(&mut self.b))
    }
}

/// The order of a tile's words: the profile's for K, plane after plane for V.
fn order_of<'a>(plan: &UnitPlan, order: &'a LayerOrder, head: usize) -> Order<'a> {
    match plan.kind() {
        Kind::K => order.words(head).map_or(Order::PlaneMajor, Order::Listed),
        Kind::V => Order::PlaneMajor,
    }
}
