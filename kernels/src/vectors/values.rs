//! The values of the vectors.

use crate::{Blocks, Kind, UnitPlan};

/// What a vector's values are like.
#[derive(Clone, Copy)]
pub(super) enum Style {
    /// Nearly normal.
    Normal,
    /// Every group of another kind: normal, constant, zeros of both signs, subnormals, any magnitude below 2^120.
    Mixed,
    /// As mixed, and some groups with NaN, infinities or magnitudes from 2^120 up.
    Escapes,
}

/// A generator of values: a linear congruence, its upper half mixed.
pub(super) struct Values {
    state: u64,
    style: Style,
}

impl Values {
    pub(super) fn new(seed: u64, style: Style) -> Self {
        Self { state: seed, style }
    }

    /// A unit full of values.
    pub(super) fn fill(&mut self, plan: &UnitPlan) -> Blocks {
        let shape = plan.shape();
        let mut blocks = Blocks::new(shape, plan.kind(), plan.tokens());
        for position in plan.tokens() {
            for head in 0..shape.kv_heads {
                for channel in 0..shape.head_dim {
                    let group = match plan.kind() {
                        Kind::K => channel,
                        Kind::V => position as usize,
                    };
                    let index = blocks.index(position, head, channel);
                    blocks.data_mut()[index] = self.value(group);
                }
            }
        }
        blocks
    }

    /// A weight between 1/8 and 8 that few share.
    pub(super) fn weight(&mut self) -> f64 {
        f64::from(self.normal().abs() * 2.0 + 0.125)
    }

    fn value(&mut self, group: usize) -> u16 {
        let kinds = match self.style {
            Style::Normal => 1,
            Style::Mixed => 6,
            Style::Escapes => 9,
        };
        let bits = self.bits();
        match group % kinds {
            0 => self.rounded(),
            1 => 0x4049,
            2 => bits & 0x8000,
            3 => bits & 0x807f,
            4 => bits & 0xbfff,
            // Every fourth value is of another magnitude.
            5 if bits & 3 == 0 => self.rounded() ^ 0x0380,
            5 => self.rounded(),
            // Rarely something that can't be coded.
            _ if bits & 15 == 0 => [0x7fc0, 0x7f80, 0xff80, 0x7b80][usize::from(bits >> 14)],
            _ => self.rounded(),
        }
    }

    fn rounded(&mut self) -> u16 {
        crate::bf16::nearest(self.normal())
    }

    /// The sum of eight bytes, centred and scaled: nearly normal.
    fn normal(&mut self) -> f32 {
        let sum: u16 = self.next().to_le_bytes().into_iter().map(u16::from).sum();
        (f32::from(sum) - 1020.0) / 209.0
    }

    fn bits(&mut self) -> u16 {
        let [.., low, high] = self.next().to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        (self.state ^ (self.state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}
