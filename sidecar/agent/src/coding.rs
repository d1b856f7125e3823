//! How one transfer's KV is coded: a method's segments, their levels and their bytes.
//!
//! Both agents derive the same [`Coding`] from the [`Descriptor`] that opens the transfer. What the protocol carries are
//! numbered segments; what an engine's pool holds are blocks; this is the only room that knows both.

mod by_engine;
mod on_gpu;
mod received;
#[cfg(test)]
mod tests;
pub mod whole_blocks;

use std::ops::Range;

use lynx_cuda::CodeError;
use lynx_kernels::{
    BLOCK_TOKENS, Codec, Cuts, CutsError, Kind, KvShape, LayerOrder, MergeError, PlanError,
    Profile, PromptPlan, RawTokens, TileSource, UnitBuffer, UnitPlan, UnitRef, checksum,
};
use lynx_proto::peer::v1;
use lynx_protocol::limits::MAX_TRANSFER_SEGMENTS;
use lynx_protocol::{PlanError as TransferError, TransferPlan};
use lynx_units::{Bytes, Priority, SegmentIndex, UnitIndex, Width};
use prost::Message as _;

pub use self::received::{Next, NoSuchSegment, Received};
pub use self::whole_blocks::UnitError;
use crate::baseline::{Baseline, EncodeError as TileError};
use crate::method::Method;
use crate::pool::{
    AccessError, AskError, GpuUnit, Piece, Readable, Sink, Values, ValuesMut, Writable,
};

/// What both agents must know to make the same plan; as bytes, what opens the transfer on the link.
pub use lynx_proto::peer::v1::Coding as Descriptor;

/// Tokens of a unit: a chunk of prefill, so that every layer of a chunk can be sent as soon as it is computed.
pub const UNIT_TOKENS: u32 = 256;

/// What the integers of a transfer mean: its plan for the codec, and for the protocol.
#[derive(Debug)]
pub struct Coding {
    descriptor: Descriptor,
    method: Method,
    shape: KvShape,
    units: PromptPlan,
    transfer: TransferPlan,
    /// Steps of words that a unit sends, the anchor included; the same for K and V, so that levels mean the same for both.
    steps: usize,
}

/// One unit's segments as they are sent, with their checksums.
pub type Segments = Vec<(Piece, u64)>;

/// Why a descriptor says nothing that can be done.
#[derive(Debug, thiserror::Error)]
pub enum CodingError {
    /// A method of a later version, or none.
    #[error("method {0} is not known here: both agents must be of the same version")]
    Method(i32),
    /// An anchor's width out of range.
    #[error(
        "an anchor of {k_eighths} eighths of a bit for K and {v_bits} bits for V is out of range"
    )]
    Width {
        /// K's mean width in eighths of a bit.
        k_eighths: u32,
        /// V's width in bits.
        v_bits: u32,
    },
    /// The codec can't cut there.
    #[error(transparent)]
    Cuts(#[from] CutsError),
    /// A start within a block.
    #[error("a transfer starts at a multiple of {BLOCK_TOKENS} tokens, not at {0}")]
    Start(u32),
    /// A prompt that the codec can't take.
    #[error(transparent)]
    Units(#[from] PlanError),
    /// A prompt that the protocol can't take.
    #[error("the prompt is too long for one transfer: {0}")]
    Transfer(#[from] TransferError),
    /// More units than can be numbered.
    #[error("the prompt is too long for one transfer")]
    TooLong,
}

/// A unit that a transfer, or a pool, can't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transfer has no unit {unit} of {shape}")]
pub struct NoSuchUnit {
    unit: usize,
    shape: KvShape,
}

/// Why a unit can't be coded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The transfer has no such unit.
    #[error(transparent)]
    Unit(#[from] NoSuchUnit),
    /// The blocks can't be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The GPU that the blocks are on can't code them.
    #[error(transparent)]
    Gpu(#[from] CodeError),
    /// The engine that codes them doesn't.
    #[error(transparent)]
    Engine(#[from] AskError),
    /// A baseline can't take a tile: never for a plan's own units.
    #[error(transparent)]
    Tile(#[from] TileError),
}

/// Why a unit's segments can't be written into an engine's blocks.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The transfer has no such unit.
    #[error(transparent)]
    Unit(#[from] NoSuchUnit),
    /// The blocks can't be written now.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The GPU that the blocks are on can't write them, or the bytes are not what the codec writes.
    #[error(transparent)]
    Gpu(#[from] CodeError),
    /// The engine that codes them doesn't write them.
    #[error(transparent)]
    Engine(#[from] AskError),
    /// The bytes are not what a baseline's encoder writes.
    #[error(transparent)]
    Baseline(#[from] UnitError),
    /// The bytes are not what the codec writes.
    #[error(transparent)]
    Codec(#[from] MergeError),
}

impl Coding {
    /// The coding that `descriptor` asks for.
    ///
    /// # Errors
    /// Where it asks for something impossible: widths, lengths or positions out of range.
    pub fn new(shape: KvShape, descriptor: &Descriptor) -> Result<Self, CodingError> {
        let method = Method::try_from(descriptor.method())
            .map_err(|()| CodingError::Method(descriptor.method))?;
        let (k_eighths, v_bits) = (descriptor.anchor_k_eighths, descriptor.anchor_v_bits);
        let width = u8::try_from(k_eighths).ok().and_then(Width::from_eighths);
        let (Some(width), Ok(v)) = (width, u8::try_from(v_bits)) else {
            return Err(CodingError::Width { k_eighths, v_bits });
        };
        let cuts = Cuts::new(width, v)?;
        if !(descriptor.from_token as usize).is_multiple_of(BLOCK_TOKENS) {
            return Err(CodingError::Start(descriptor.from_token));
        }
        let raw = if method.drafts() {
            RawTokens::for_prompt(descriptor.prompt_tokens)
        } else {
            RawTokens::none()
        };
        let tokens = descriptor.from_token..descriptor.prompt_tokens;
        let steps = cuts.steps(Kind::K).max(cuts.steps(Kind::V));
        let levels = levels(method, steps);
        // Before a plan is made, which takes memory for every unit.
        let ranges = tokens.len().div_ceil(UNIT_TOKENS as usize);
        let segments = ranges.saturating_mul(shape.layers * Kind::ALL.len() * levels.len());
        if segments > MAX_TRANSFER_SEGMENTS {
            return Err(CodingError::TooLong);
        }
        let units = PromptPlan::new(shape, tokens, UNIT_TOKENS, raw, cuts)?;
        let count = u32::try_from(units.len()).map_err(|_| CodingError::TooLong)?;
        let transfer = TransferPlan::new(count, &levels, |unit, segment| {
            let bound = units.unit(unit.0 as usize).map_or(0, |unit| {
                bound(method, unit.plan, usize::from(segment.0), steps)
            });
            u32::try_from(bound).unwrap_or(u32::MAX)
        })?;
        Ok(Self {
            descriptor: descriptor.clone(),
            method,
            shape,
            units,
            transfer,
            steps,
        })
    }

    /// What it was derived from.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The descriptor's bytes, which open the transfer.
    pub fn descriptor_bytes(&self) -> Vec<u8> {
        self.descriptor.encode_to_vec()
    }

    /// Whether an offer's bytes are this transfer's descriptor.
    pub fn is_described_by(&self, offered: &[u8]) -> bool {
        Descriptor::decode(offered).is_ok_and(|offered| offered == self.descriptor)
    }

    /// How the KV travels.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The plan that the protocol follows.
    pub fn transfer(&self) -> &TransferPlan {
        &self.transfer
    }

    /// The units, in the order of the transfer.
    pub fn units(&self) -> &PromptPlan {
        &self.units
    }

    /// The highest level: once it is complete, so is the transfer.
    pub fn last_level(&self) -> u8 {
        self.transfer.levels() - 1
    }

    /// Whether an exact tail follows the words.
    pub fn has_tail(&self) -> bool {
        self.method == Method::LynxExact
    }

    /// Whether a complete transfer leaves the very bits that the prefill node had.
    pub fn is_exact(&self) -> bool {
        matches!(self.method, Method::Bf16 | Method::LynxExact)
    }

    /// What the transfer's KV takes as BF16, in bytes.
    pub fn bf16_bytes(&self) -> u64 {
        self.units
            .units()
            .map(|unit| unit.plan.bf16_bytes() as u64)
            .sum()
    }

    /// Codes one unit of the prompt whose blocks are `blocks`.
    ///
    /// # Errors
    /// Where there is no such unit, or its tokens are not published.
    pub fn encode(
        &self,
        codec: &Codec,
        profile: &Profile,
        unit: usize,
        blocks: &Readable,
    ) -> Result<Segments, EncodeError> {
        self.encode_part(codec, profile, unit, blocks, 0..self.transfer.segments())
    }

    /// How many segments of a unit are its anchor: the first ones.
    pub fn anchor_segments(&self) -> usize {
        let segments = 0..self.transfer.segments();
        let of_anchor = segments.filter(|segment| self.priority(*segment) == Priority::Anchor);
        of_anchor.count()
    }

    /// What the anchor of one unit takes at most, and what the rest of it does.
    pub fn bounds(&self, unit: usize) -> [Bytes; 2] {
        let mut bounds = [Bytes::ZERO; 2];
        for segment in 0..self.transfer.segments() {
            let index = SegmentIndex(u16::try_from(segment).unwrap_or(u16::MAX));
            let unit = UnitIndex(u32::try_from(unit).unwrap_or(u32::MAX));
            let bound = self.transfer.bound(unit, index).unwrap_or(0);
            bounds[self.priority(segment).index()] += Bytes::new(bound.into());
        }
        bounds
    }

    fn priority(&self, segment: usize) -> Priority {
        let index = SegmentIndex(u16::try_from(segment).unwrap_or(u16::MAX));
        let priority = self.transfer.priority(index);
        priority.unwrap_or(Priority::Residual)
    }

    /// The same for some of its segments, in order.
    ///
    /// # Errors
    /// Where there is no such unit, or its tokens are not published.
    pub fn encode_part(
        &self,
        codec: &Codec,
        profile: &Profile,
        unit: usize,
        blocks: &Readable,
        wanted: Range<usize>,
    ) -> Result<Segments, EncodeError> {
        let unit = self.unit(unit, blocks.shape())?;
        let order = profile.layer(unit.layer);
        let with_tail = self.has_tail() && wanted.end == self.transfer.segments();
        let values = blocks.values(unit.layer, unit.plan.kind(), unit.plan.tokens())?;
        let segments = match (values, baseline(self.method)) {
            (Values::Gpu(values), None) => {
                let plan = unit.plan;
                let units = [GpuUnit {
                    plan,
                    order,
                    values,
                }];
                let made = GpuUnit::split_all(&units, with_tail)?.pop();
                return Ok(self.segments_of(made.unwrap_or_default(), wanted));
            }
            (Values::Gpu(mut values), Some(baseline)) => {
                let values = values.read(unit.plan)?;
                vec![whole_blocks::encode(baseline, unit.plan, &values)?]
            }
            (Values::Engine(values), None) => {
                let prompt = self.descriptor.prompt_tokens;
                let made = values.split(unit.plan, prompt, with_tail);
                blocks.intact()?;
                return Ok(self.segments_by_engine(made?, with_tail, wanted));
            }
            (Values::Engine(values), Some(baseline)) => {
                let read = values.read(unit.plan, self.descriptor.prompt_tokens);
                blocks.intact()?;
                vec![whole_blocks::encode(baseline, unit.plan, &read?)?]
            }
            (Values::Host(source), Some(baseline)) => {
                vec![whole_blocks::encode(baseline, unit.plan, &source)?]
            }
            (Values::Host(source), None) => {
                self.encode_lynx(codec, order, unit.plan, &source, with_tail)
            }
        };
        blocks.intact()?;
        let segments = segments.into_iter().take(wanted.end).skip(wanted.start);
        Ok(segments
            .map(|mut bytes| {
                let sum = checksum(&bytes);
                // What was reserved for the worst case would lie there until the last byte is sent.
                bytes.shrink_to_fit();
                (bytes.into(), sum)
            })
            .collect())
    }

    fn encode_lynx(
        &self,
        codec: &Codec,
        order: &LayerOrder,
        plan: &UnitPlan,
        source: &impl TileSource,
        with_tail: bool,
    ) -> Vec<Vec<u8>> {
        let mut unit = UnitBuffer::default();
        unit.reserve(plan);
        codec.split(plan, order, source, &mut unit);
        if with_tail {
            codec.encode_tail(plan, source, &mut unit.tail);
        }
        let UnitBuffer {
            head,
            mut steps,
            tail,
        } = unit;
        steps.resize(self.steps, Vec::new());
        let mut segments = vec![head];
        segments.append(&mut steps);
        if with_tail {
            segments.push(tail);
        }
        segments
    }

    /// Writes what the received segments of one unit hold into `blocks`: a baseline's values, an approximation from the first
    /// steps, or with the tail the exact values. Tell the record with [`Received::merged`].
    ///
    /// # Errors
    /// Where the bytes are not what an encoder writes, or the blocks are the engine's at the moment.
    pub fn decode(
        &self,
        codec: &Codec,
        profile: &Profile,
        unit: usize,
        received: &mut Received,
        blocks: &mut Writable,
    ) -> Result<(), DecodeError> {
        let unit = self.unit(unit, blocks.shape())?;
        let next = received.merge_next();
        if next == Next::Nothing {
            return Ok(());
        }
        let order = profile.layer(unit.layer);
        let of_plan = (unit.plan, order);
        let decoded = match blocks.values_mut(unit.layer, unit.plan.kind(), unit.plan.tokens())? {
            ValuesMut::Gpu(values) => self.decode_on_gpu(values, of_plan, received, next),
            ValuesMut::Engine(values) => self.decode_by_engine(&values, unit.plan, received, next),
            ValuesMut::Host(mut sink) => {
                self.decode_on_host(codec, of_plan, received, next, &mut sink)
            }
        };
        blocks.intact()?;
        decoded
    }

    fn decode_on_host(
        &self,
        codec: &Codec,
        (plan, order): (&UnitPlan, &LayerOrder),
        received: &Received,
        next: Next,
        sink: &mut Sink<'_>,
    ) -> Result<(), DecodeError> {
        match (baseline(self.method), next) {
            (Some(baseline), _) => {
                whole_blocks::decode(baseline, plan, &received.unit.head, sink)?;
            }
            (None, Next::Exact) => codec.decode_tail(plan, order, &received.unit, sink)?,
            (None, Next::Steps(steps)) => {
                let steps = steps.min(plan.steps());
                codec.merge(plan, order, &received.unit, steps, sink)?;
            }
            (None, Next::Nothing) => {}
        }
        Ok(())
    }

    /// An empty record of a unit's segments.
    pub fn receive(&self) -> Received {
        Received::new(self.steps, self.transfer.segments())
    }

    fn unit(&self, unit: usize, shape: KvShape) -> Result<UnitRef<'_>, NoSuchUnit> {
        let found = self.units.unit(unit).filter(|_| shape == self.shape);
        found.ok_or(NoSuchUnit { unit, shape })
    }
}

impl From<Method> for v1::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Bf16 => Self::Bf16,
            Method::Int8 => Self::Int8,
            Method::Int4 => Self::Int4,
            Method::LynxInt8 => Self::LynxInt8,
            Method::LynxExact => Self::LynxExact,
        }
    }
}

/// The method; nothing is said where there is none.
impl TryFrom<v1::Method> for Method {
    type Error = ();

    fn try_from(method: v1::Method) -> Result<Self, ()> {
        match method {
            v1::Method::Unspecified => Err(()),
            v1::Method::Bf16 => Ok(Self::Bf16),
            v1::Method::Int8 => Ok(Self::Int8),
            v1::Method::Int4 => Ok(Self::Int4),
            v1::Method::LynxInt8 => Ok(Self::LynxInt8),
            v1::Method::LynxExact => Ok(Self::LynxExact),
        }
    }
}

fn baseline(method: Method) -> Option<Baseline> {
    match method {
        Method::Bf16 => Some(Baseline::Bf16),
        Method::Int8 => Some(Baseline::Int8),
        Method::Int4 => Some(Baseline::Int4),
        Method::LynxInt8 | Method::LynxExact => None,
    }
}

/// The level of each segment: head and anchor 0, each further step one more, the tail last. A baseline is one segment.
fn levels(method: Method, steps: usize) -> Vec<u8> {
    if baseline(method).is_some() {
        return vec![0];
    }
    let steps = u8::try_from(steps).unwrap_or(u8::MAX);
    let mut levels = vec![0];
    levels.extend(0..steps);
    if method == Method::LynxExact {
        levels.push(steps);
    }
    levels
}

fn bound(method: Method, plan: &UnitPlan, segment: usize, steps: usize) -> usize {
    match (baseline(method), segment) {
        (Some(baseline), _) => whole_blocks::encoded_len(baseline, plan),
        (None, 0) => plan.head_bound(),
        (None, segment) if segment > steps => plan.tail_bound(),
        (None, segment) if segment > plan.steps() => 0,
        (None, segment) => plan.step_bytes(segment - 1),
    }
}
