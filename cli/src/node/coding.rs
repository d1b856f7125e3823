//! How one transfer's KV is coded: a method's segments, their levels and their bytes.
//!
//! Both nodes derive the same [`Coding`] from the [`Descriptor`] that opens the transfer. What the protocol carries are
//! numbered segments; what the engine holds are blocks; this is the only room that knows both.

use anyhow::{Context as _, Result, bail, ensure};
use lynx_engine::{SequenceKv, SequenceKvMut};
use lynx_kernels::{
    Codec, Cuts, Kind, KvShape, LayerOrder, Profile, PromptPlan, RawTokens, UnitBuffer, UnitPlan,
    checksum,
};
use lynx_protocol::TransferPlan;
use lynx_units::Width;
use serde::{Deserialize, Serialize};

use super::tiles::{Sink, Source};
use super::whole_blocks;
use crate::baseline::Baseline;
use crate::run::Method;

/// Tokens of a unit: a chunk of prefill, so that every layer of a chunk is published as soon as it is computed.
pub const UNIT_TOKENS: u32 = 256;

/// What both nodes must know to make the same plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// The request.
    pub run: u64,
    /// How its KV travels.
    pub method: Method,
    /// The prompt's length.
    pub prompt_tokens: u32,
    /// The first position that the decode node lacks: a multiple of the block's 64 tokens.
    pub from_token: u32,
    /// The anchor's mean K width in eighths of a bit.
    pub anchor_k_eighths: u8,
    /// The anchor's V width in bits.
    pub anchor_v: u8,
    /// The profile's hash.
    pub profile: String,
}

/// What the integers of a transfer mean: its plan for the codec, and for the protocol.
#[derive(Debug)]
pub struct Coding {
    descriptor: Descriptor,
    method: Method,
    units: PromptPlan,
    transfer: TransferPlan,
    /// Steps of words that a unit sends, the anchor included; the same for K and V, so that levels mean the same for both.
    steps: usize,
}

/// One unit's segments as they are sent, with their checksums.
pub type Segments = Vec<(Vec<u8>, u64)>;

impl Coding {
    /// The coding that `descriptor` asks for.
    ///
    /// # Errors
    /// Where it asks for something impossible: widths, lengths or positions out of range.
    pub fn new(shape: KvShape, descriptor: &Descriptor) -> Result<Self> {
        let method = descriptor.method;
        let width = Width::from_eighths(descriptor.anchor_k_eighths)
            .context("the anchor's width is over 8 bits")?;
        let cuts = Cuts::new(width, descriptor.anchor_v)?;
        ensure!(
            descriptor.from_token.is_multiple_of(64),
            "a transfer starts at a multiple of 64 tokens, not at {}",
            descriptor.from_token
        );
        let raw = if method.drafts() {
            RawTokens::for_prompt(descriptor.prompt_tokens)
        } else {
            RawTokens::none()
        };
        let tokens = descriptor.from_token..descriptor.prompt_tokens;
        let units = PromptPlan::new(shape, tokens, UNIT_TOKENS, raw, cuts)?;
        let steps = cuts.steps(Kind::K).max(cuts.steps(Kind::V));
        let levels = levels(method, steps);
        let count =
            u32::try_from(units.len()).context("the prompt is too long for one transfer")?;
        let transfer = TransferPlan::new(count, &levels, |unit, segment| {
            let bound = units.unit(unit.0 as usize).map_or(0, |unit| {
                bound(method, unit.plan, usize::from(segment.0), steps)
            });
            u32::try_from(bound).unwrap_or(u32::MAX)
        })?;
        Ok(Self {
            descriptor: descriptor.clone(),
            method,
            units,
            transfer,
            steps,
        })
    }

    /// What it was derived from.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
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

    /// Codes one unit of the prompt whose KV is `kv`.
    ///
    /// # Errors
    /// Where a baseline can't take the tile: never for a plan's own units.
    pub fn encode(
        &self,
        codec: &Codec,
        profile: &Profile,
        unit: usize,
        kv: &SequenceKv<'_>,
    ) -> Result<Segments> {
        let unit = self.units.unit(unit).context("no such unit")?;
        let source = Source::new(kv, unit.layer, unit.plan.kind());
        let segments = match baseline(self.method) {
            Some(baseline) => vec![whole_blocks::encode(baseline, unit.plan, &source)?],
            None => self.encode_lynx(codec, profile.layer(unit.layer), unit.plan, &source),
        };
        Ok(segments
            .into_iter()
            .map(|bytes| {
                let sum = checksum(&bytes);
                (bytes, sum)
            })
            .collect())
    }

    fn encode_lynx(
        &self,
        codec: &Codec,
        order: &LayerOrder,
        plan: &UnitPlan,
        source: &Source<'_>,
    ) -> Vec<Vec<u8>> {
        let mut unit = UnitBuffer::default();
        unit.reserve(plan);
        codec.split(plan, order, source, &mut unit);
        if self.method == Method::LynxExact {
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
        if self.method == Method::LynxExact {
            segments.push(tail);
        }
        segments
    }

    /// Writes what the received segments of one unit hold into `kv`: a baseline's values, an approximation from the first
    /// `steps` steps, or with the tail the exact values.
    ///
    /// # Errors
    /// Where the bytes are not what an encoder writes.
    pub fn decode(
        &self,
        codec: &Codec,
        profile: &Profile,
        unit: usize,
        received: &Received,
        kv: &mut SequenceKvMut<'_>,
    ) -> Result<()> {
        let unit = self.units.unit(unit).context("no such unit")?;
        let mut sink = Sink::new(kv, unit.layer, unit.plan.kind());
        let order = profile.layer(unit.layer);
        match (baseline(self.method), received.merge_next()) {
            (Some(baseline), _) => {
                whole_blocks::decode(baseline, unit.plan, &received.unit.head, &mut sink)
            }
            (None, Next::Exact) => {
                Ok(codec.decode_tail(unit.plan, order, &received.unit, &mut sink)?)
            }
            (None, Next::Steps(steps)) => Ok(codec.merge(
                unit.plan,
                order,
                &received.unit,
                steps.min(unit.plan.steps()),
                &mut sink,
            )?),
            (None, Next::Nothing) => Ok(()),
        }
    }

    /// An empty record of a unit's segments.
    pub fn receive(&self) -> Received {
        Received {
            unit: UnitBuffer {
                head: Vec::new(),
                steps: vec![Vec::new(); self.steps],
                tail: Vec::new(),
            },
            here: vec![false; self.transfer.segments()],
            merged: Merged::Nothing,
        }
    }
}

/// What a unit's received segments allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing that is not in the engine's blocks already.
    Nothing,
    /// An approximation from so many steps.
    Steps(usize),
    /// The exact values.
    Exact,
}

/// What of a unit is in the engine's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Merged {
    Nothing,
    Steps(usize),
    Exact,
}

/// One unit's segments, as they arrive.
#[derive(Debug)]
pub struct Received {
    unit: UnitBuffer,
    here: Vec<bool>,
    merged: Merged,
}

impl Received {
    /// Takes segment `index`; its bytes are moved, not copied.
    ///
    /// # Errors
    /// Where the unit has no such segment.
    pub fn take(&mut self, index: usize, bytes: Vec<u8>) -> Result<()> {
        let Some(here) = self.here.get_mut(index) else {
            bail!("a unit has no segment {index}")
        };
        *here = true;
        match index.checked_sub(1) {
            None => self.unit.head = bytes,
            Some(step) if step < self.unit.steps.len() => self.unit.steps[step] = bytes,
            Some(_) => self.unit.tail = bytes,
        }
        Ok(())
    }

    /// What can be merged that is not merged yet.
    pub fn merge_next(&self) -> Next {
        let segments = self.here.iter().take_while(|here| **here).count();
        let steps = segments.saturating_sub(1).min(self.unit.steps.len());
        let tail = self.here.len() > self.unit.steps.len() + 1 && segments == self.here.len();
        let baseline = self.here.len() == 1 && segments == 1;
        if (tail || baseline) && self.merged < Merged::Exact {
            Next::Exact
        } else if steps > 0 && self.merged < Merged::Steps(steps) && !tail {
            Next::Steps(steps)
        } else {
            Next::Nothing
        }
    }

    /// Notes that what [`merge_next`](Self::merge_next) told is in the blocks, and frees what no later merge reads.
    pub fn merged(&mut self) {
        match self.merge_next() {
            Next::Nothing => {}
            Next::Steps(steps) => self.merged = Merged::Steps(steps),
            Next::Exact => {
                self.merged = Merged::Exact;
                self.unit = UnitBuffer {
                    head: Vec::new(),
                    steps: vec![Vec::new(); self.unit.steps.len()],
                    tail: Vec::new(),
                };
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape {
        layers: 2,
        kv_heads: 2,
        head_dim: 64,
    };

    fn descriptor(method: Method, eighths: u8, v: u8) -> Descriptor {
        Descriptor {
            run: 1,
            method,
            prompt_tokens: 700,
            from_token: 64,
            anchor_k_eighths: eighths,
            anchor_v: v,
            profile: String::new(),
        }
    }

    #[test]
    fn levels_mean_the_same_for_k_and_v() {
        let coding = Coding::new(SHAPE, &descriptor(Method::LynxExact, 28, 6)).unwrap();
        // K: 3.5, 4, 5, 6, 7, 8 bits; V: 6, 7, 8 and then nothing.
        assert_eq!(coding.transfer().segments(), 1 + 6 + 1);
        assert_eq!(coding.last_level(), 6);
        let v = lynx_units::UnitIndex(1);
        let bound = |segment| {
            coding
                .transfer()
                .bound(v, lynx_units::SegmentIndex(segment))
        };
        assert_eq!([bound(4), bound(5), bound(6)], [Some(0); 3]);
        assert!(bound(3) > Some(0) && bound(7) > Some(0));
    }

    #[test]
    fn a_unit_is_merged_as_far_as_its_segments_reach() {
        let coding = Coding::new(SHAPE, &descriptor(Method::LynxExact, 32, 4)).unwrap();
        let mut received = coding.receive();
        let mut seen = Vec::new();
        for segment in [1, 0, 3, 2, 4, 5, 6] {
            received.take(segment, vec![0]).unwrap();
            seen.push(received.merge_next());
            received.merged();
            assert_eq!(received.merge_next(), Next::Nothing);
        }
        use Next::{Exact, Nothing, Steps};
        assert_eq!(
            seen,
            [
                Nothing,
                Steps(1),
                Nothing,
                Steps(3),
                Steps(4),
                Steps(5),
                Exact
            ]
        );
        assert!(received.take(7, Vec::new()).is_err());
    }

    #[test]
    fn a_baseline_is_one_segment() {
        let coding = Coding::new(SHAPE, &descriptor(Method::Int4, 32, 4)).unwrap();
        assert_eq!((coding.transfer().segments(), coding.last_level()), (1, 0));
        let mut received = coding.receive();
        assert_eq!(received.merge_next(), Next::Nothing);
        received.take(0, vec![0]).unwrap();
        assert_eq!(received.merge_next(), Next::Exact);
    }

    #[test]
    fn impossible_descriptors_are_refused() {
        for (eighths, v) in [(7, 4), (65, 4), (32, 0), (32, 9)] {
            assert!(Coding::new(SHAPE, &descriptor(Method::LynxExact, eighths, v)).is_err());
        }
        let inside_a_block = Descriptor {
            from_token: 65,
            ..descriptor(Method::LynxExact, 32, 4)
        };
        assert!(Coding::new(SHAPE, &inside_a_block).is_err());
        let nothing = Descriptor {
            from_token: 704,
            ..descriptor(Method::LynxExact, 32, 4)
        };
        assert!(Coding::new(SHAPE, &nothing).is_err());
    }
}
