//! Test vectors: units with their segments, by which another implementation can tell whether it is one.
//!
//! They are made by the scalar kernels and committed in `kernels/vectors`; the form is described in `docs/codec.md`.
//! Values come from integer arithmetic and exact divisions alone, so that every machine makes the same ones.

mod values;

use core::ops::Range;

use lynx_units::Width;
use serde::{Deserialize, Serialize};

use crate::hex::{from_hex, to_hex};
use crate::{
    Blocks, Codec, Cuts, Kind, KvShape, LayerOrder, Profile, RawTokens, Simd, UnitBuffer, UnitPlan,
    checksum,
};
use values::{Style, Values};

/// What a file says it is.
const FORMAT: &str = "lynx codec 1 vector";

/// One unit, its segments, and what merging them gives. Binary fields are hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    format: String,
    /// `K` or `V`.
    kind: String,
    kv_heads: usize,
    head_dim: usize,
    /// The first position, and the one after the last.
    tokens: [u32; 2],
    sinks: u32,
    window_start: u32,
    anchor_k: String,
    anchor_v: u8,
    /// For each head, the channels in the order of their words; none for plane-major.
    orders: Vec<String>,
    /// BF16, little-endian, `[token][head][channel]`.
    values: String,
    /// Head, steps, tail.
    segments: Vec<String>,
    /// The segments' checksums, most significant digit first.
    checksums: Vec<String>,
    /// The checksums of the values (as laid out in `values`) that merging 1, 2, ... steps gives.
    merged: Vec<String>,
}

/// What makes a vector.
struct Recipe {
    name: &'static str,
    kind: Kind,
    kv_heads: usize,
    head_dim: usize,
    tokens: Range<u32>,
    raw: RawTokens,
    /// K in eighths, V.
    anchor: (u8, u8),
    weighted: bool,
    style: Style,
}

const RECIPES: [Recipe; 8] = [
    recipe(
        "k-one-block",
        Kind::K,
        (1, 16),
        0..64,
        (32, 4),
        Style::Normal,
    ),
    Recipe {
        raw: RawTokens::new(4, 148),
        weighted: true,
        ..recipe(
            "k-profile-partial-blocks",
            Kind::K,
            (2, 16),
            60..150,
            (28, 4),
            Style::Normal,
        )
    },
    recipe("k-escapes", Kind::K, (1, 8), 3..41, (33, 1), Style::Escapes),
    recipe(
        "k-fractional-plane-major",
        Kind::K,
        (1, 40),
        64..87,
        (13, 8),
        Style::Mixed,
    ),
    Recipe {
        raw: RawTokens::new(4, 39),
        ..recipe(
            "v-64-channels",
            Kind::V,
            (1, 64),
            0..40,
            (32, 4),
            Style::Normal,
        )
    },
    recipe(
        "v-96-channels",
        Kind::V,
        (1, 96),
        100..121,
        (64, 3),
        Style::Mixed,
    ),
    recipe(
        "v-128-channels-escapes",
        Kind::V,
        (1, 128),
        16..33,
        (64, 5),
        Style::Escapes,
    ),
    recipe(
        "v-256-channels",
        Kind::V,
        (1, 256),
        128..144,
        (64, 8),
        Style::Normal,
    ),
];

const fn recipe(
    name: &'static str,
    kind: Kind,
    (kv_heads, head_dim): (usize, usize),
    tokens: Range<u32>,
    anchor: (u8, u8),
    style: Style,
) -> Recipe {
    let raw = RawTokens::none();
    Recipe {
        name,
        kind,
        kv_heads,
        head_dim,
        tokens,
        raw,
        anchor,
        weighted: false,
        style,
    }
}

/// All vectors, as (file name, content).
///
/// # Panics
/// Never: the recipes are constants that a test runs.
pub fn generate() -> Vec<(String, String)> {
    let recipes = (1u64..).zip(&RECIPES);
    let files = recipes.map(|(seed, recipe)| {
        let mut text = serde_json::to_string_pretty(&make(recipe, seed))
            .expect("strings and numbers are always JSON");
        text.push('\n');
        (format!("{}.json", recipe.name), text)
    });
    files.collect()
}

fn make(recipe: &Recipe, seed: u64) -> Vector {
    let shape = KvShape {
        layers: 1,
        kv_heads: recipe.kv_heads,
        head_dim: recipe.head_dim,
    };
    let mut values = Values::new(seed, recipe.style);
    let profile = if recipe.weighted {
        let weights: Vec<f64> = (0..shape.kv_heads * shape.head_dim)
            .map(|_| values.weight())
            .collect();
        Profile::from_weights(recipe.name, shape, &weights)
    } else {
        Profile::uniform(shape).map_err(Into::into)
    };
    let profile = profile.expect("the recipes' shapes and weights are possible");
    let (k, anchor_v) = recipe.anchor;
    let k = Width::from_eighths(k).expect("the recipes' widths are possible");
    let orders: Vec<Vec<u8>> = profile.layer(0).lists().collect();
    let mut vector = Vector {
        format: FORMAT.to_owned(),
        kind: name(recipe.kind).to_owned(),
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        tokens: [recipe.tokens.start, recipe.tokens.end],
        sinks: recipe.raw.sinks(),
        window_start: recipe.raw.window_start(),
        anchor_k: k.to_string(),
        anchor_v,
        orders: orders.iter().map(|list| to_hex(list)).collect(),
        values: String::new(),
        segments: Vec::new(),
        checksums: Vec::new(),
        merged: Vec::new(),
    };
    let plan = vector.plan().expect("the recipes' plans are possible");
    let source = values.fill(&plan);
    vector.values = to_hex(&bytes_of(&plan, &source));
    vector.encode(&plan, profile.layer(0), &source);
    vector
}

impl Vector {
    /// Reads a vector.
    ///
    /// # Errors
    /// Where the text isn't JSON of this form.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The unit's plan; `None` where the numbers don't make one.
    pub fn plan(&self) -> Option<UnitPlan> {
        let shape = KvShape {
            layers: 1,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        };
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| name(*kind) == self.kind)?;
        let cuts = Cuts::new(self.anchor_k.parse().ok()?, self.anchor_v).ok()?;
        let raw = RawTokens::new(self.sinks, self.window_start);
        UnitPlan::new(shape, kind, self.tokens[0]..self.tokens[1], raw, cuts).ok()
    }

    /// The order of the words; `None` where a list is wrong.
    pub fn order(&self) -> Option<LayerOrder> {
        let lists = self
            .orders
            .iter()
            .map(|text| from_hex(text))
            .collect::<Option<Vec<_>>>()?;
        LayerOrder::from_lists(self.head_dim, &lists).ok()
    }

    /// The segments; `None` where they aren't hexadecimal or not as many as planned.
    pub fn segments(&self) -> Option<UnitBuffer> {
        let mut segments = self
            .segments
            .iter()
            .map(|text| from_hex(text))
            .collect::<Option<Vec<_>>>()?;
        let tail = segments.pop()?;
        let steps = segments.split_off(1.min(segments.len()));
        let unit = UnitBuffer {
            head: segments.pop()?,
            steps,
            tail,
        };
        (unit.steps.len() == self.plan()?.steps()).then_some(unit)
    }

    /// The unit's values, `[token][head][channel]`, as little-endian bytes.
    pub fn values(&self) -> Option<Vec<u8>> {
        from_hex(&self.values)
    }

    /// The checksums of the segments, as the vector states them.
    pub fn checksums(&self) -> Option<Vec<u64>> {
        self.checksums
            .iter()
            .map(|text| u64::from_str_radix(text, 16).ok())
            .collect()
    }

    /// The checksums of the values that merging 1, 2, ... steps gives, as the vector states them.
    pub fn merged(&self) -> Option<Vec<u64>> {
        self.merged
            .iter()
            .map(|text| u64::from_str_radix(text, 16).ok())
            .collect()
    }

    fn encode(&mut self, plan: &UnitPlan, order: &LayerOrder, source: &Blocks) {
        let codec = Codec::with_simd(Simd::Scalar).expect("scalar needs no CPU feature");
        let mut unit = UnitBuffer::default();
        codec.split(plan, order, source, &mut unit);
        codec.encode_tail(plan, source, &mut unit.tail);
        for segment in (0..plan.segments()).filter_map(|index| unit.segment(index)) {
            self.segments.push(to_hex(segment));
            self.checksums.push(format!("{:016x}", checksum(segment)));
        }
        for steps in 1..=plan.steps() {
            let mut sink = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            codec
                .merge(plan, order, &unit, steps, &mut sink)
                .expect("segments just made are those of the plan");
            self.merged
                .push(format!("{:016x}", checksum(&bytes_of(plan, &sink))));
        }
    }
}

/// The values of a unit as little-endian bytes, `[token][head][channel]`.
pub fn bytes_of(plan: &UnitPlan, blocks: &Blocks) -> Vec<u8> {
    let KvShape {
        kv_heads, head_dim, ..
    } = plan.shape();
    let mut bytes = Vec::with_capacity(plan.bf16_bytes());
    for position in plan.tokens() {
        for head in 0..kv_heads {
            for channel in 0..head_dim {
                let bits = blocks.data()[blocks.index(position, head, channel)];
                bytes.extend(bits.to_le_bytes());
            }
        }
    }
    bytes
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::K => "K",
        Kind::V => "V",
    }
}
