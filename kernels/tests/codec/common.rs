//! What the tests share: units with values that are hard on the codec.

use std::ops::Range;

use lynx_kernels::{
    Blocks, Cuts, Kind, KvShape, LayerOrder, Profile, RawTokens, UnitBuffer, UnitPlan,
};
use lynx_units::Width;

/// Xorshift with a multiplied output: any seed gives the same values on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * (self.unit() + 1e-18).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub(crate) fn bf16(&mut self) -> u16 {
        (self.next() >> 40) as u16
    }
}

/// The nearest BF16 of a number that isn't NaN.
pub(crate) fn bf16(x: f64) -> u16 {
    let bits = (x as f32).to_bits();
    ((u64::from(bits) + 0x7fff + u64::from(bits >> 16 & 1)) >> 16) as u16
}

pub(crate) fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// What a block's values are like.
pub(crate) const STYLES: usize = 13;

/// A value of `style`, in a group with the random constant `group`.
fn sample(random: &mut Random, style: usize, group: u16) -> u16 {
    match style {
        0 => bf16(random.normal()),
        1 => bf16(random.normal() * 1e-6 + 3.0),
        // Any finite value, below and above the limit of 2^120.
        2 => random.bf16() & 0xbfff | (random.bf16() & 0x3fff),
        3 => group & 0xf7ff & 0x7bff,
        4 => random.bf16() & 0x8000,
        5 => random.bf16() & 0x807f,
        6 => bf16(random.normal() * 2f64.powi(random.below(200) as i32 - 100)),
        7 => bf16(random.normal() * 1e30),
        // Around FP16's limits.
        8 => [0x477f, 0x4780, 0xc77f, 0x3380, 0x3300, 0xb380, 0x0000][random.below(7)],
        // Now and then NaN or an infinity.
        9 if random.below(50) == 0 => [0x7fc0, 0x7f80, 0xff80, 0xffff, 0x7b80][random.below(5)],
        10 => random.bf16(),
        11 => at_a_bound(random, group),
        _ => bf16(random.normal() * f64::from(group & 7)),
    }
}

/// A value at or beside a cell's bound, in a group whose range is as narrow as the codec allows, or wider.
fn at_a_bound(random: &mut Random, group: u16) -> u16 {
    let low = f64::from(value(group & 0xbfff));
    let range = low.abs() * 2f64.powi(1 - i32::from(group % 12));
    let bound = bf16(low + range * random.below(241) as f64 / 240.0);
    bound.wrapping_add(random.below(3) as u16).wrapping_sub(1)
}

/// One unit, its values and what coding it needs.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) plan: UnitPlan,
    pub(crate) order: LayerOrder,
    pub(crate) blocks: Blocks,
}

impl Case {
    /// A random unit; `style` says what its values are like.
    pub(crate) fn random(random: &mut Random, style: usize) -> Self {
        let head_dim = [8, 16, 40, 64, 64, 72, 80, 96, 128, 256][random.below(10)];
        let shape = KvShape {
            layers: 1,
            kv_heads: 1 + random.below(2),
            head_dim,
        };
        let start = random.below(130) as u32;
        let tokens = start..start + 1 + random.below(150) as u32;
        let raw = match random.below(3) {
            0 => RawTokens::none(),
            1 => RawTokens::for_prompt(tokens.end),
            _ => RawTokens::new(random.below(80) as u32, start + random.below(150) as u32),
        };
        let kind = Kind::ALL[random.below(2)];
        let k = Width::from_eighths(8 + random.below(57) as u8).unwrap();
        let cuts = Cuts::new(k, 1 + random.below(8) as u8).unwrap();
        Self::new(random, style, (shape, kind, tokens), raw, cuts)
    }

    /// A unit of random values and, half the time, a random order of K's words.
    pub(crate) fn new(
        random: &mut Random,
        style: usize,
        (shape, kind, tokens): (KvShape, Kind, Range<u32>),
        raw: RawTokens,
        cuts: Cuts,
    ) -> Self {
        let weights: Vec<f64> = (0..shape.layers * shape.kv_heads * shape.head_dim)
            .map(|_| random.normal().exp2())
            .collect();
        let profile = match random.below(2) {
            0 => Profile::uniform(shape).unwrap(),
            _ => Profile::from_weights("random", shape, &weights).unwrap(),
        };
        let mut blocks = Blocks::new(shape, kind, tokens.clone());
        for position in tokens.clone() {
            for head in 0..shape.kv_heads {
                let constant = random.bf16();
                for channel in 0..shape.head_dim {
                    let group = match kind {
                        Kind::K => (channel as u16).wrapping_mul(0x9e37),
                        Kind::V => constant,
                    };
                    let index = blocks.index(position, head, channel);
                    let bits = sample(random, style, group);
                    blocks.data_mut()[index] = if bits == UNTOUCHED { 0 } else { bits };
                }
            }
        }
        let plan = UnitPlan::new(shape, kind, tokens, raw, cuts).unwrap();
        Self {
            plan,
            order: profile.layer(0).clone(),
            blocks,
        }
    }

    /// Blocks of the same place filled with a pattern that no test value has.
    pub(crate) fn empty(&self) -> Blocks {
        let mut blocks = Blocks::new(self.plan.shape(), self.plan.kind(), self.plan.tokens());
        blocks.data_mut().fill(UNTOUCHED);
        blocks
    }

    /// The (expected, merged) bits of every value of the unit.
    pub(crate) fn values<'a>(
        &'a self,
        merged: &'a Blocks,
    ) -> impl Iterator<Item = (u16, u16)> + 'a {
        let shape = self.plan.shape();
        self.plan.tokens().flat_map(move |position| {
            (0..shape.kv_heads).flat_map(move |head| {
                (0..shape.head_dim).map(move |channel| {
                    let index = self.blocks.index(position, head, channel);
                    (self.blocks.data()[index], merged.data()[index])
                })
            })
        })
    }
}

/// A NaN that no case has.
pub(crate) const UNTOUCHED: u16 = 0x7fa5;

/// Splits a case completely.
pub(crate) fn encode(codec: lynx_kernels::Codec, case: &Case) -> UnitBuffer {
    let mut unit = UnitBuffer::default();
    codec.split(&case.plan, &case.order, &case.blocks, &mut unit);
    codec.encode_tail(&case.plan, &case.blocks, &mut unit.tail);
    unit
}
