//! `lynx calibrate`: makes a model's profile from a few texts.
//!
//! What a K channel is worth is measured, not guessed: the error that a code of b bits leaves in the attention scores grows
//! with the square of the query's channel and of the channel's range within a block, so both are averaged over real text.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use lynx_engine::{Observer, Tokenizer};
use lynx_kernels::{BLOCK_TOKENS, Kind, KvShape, Profile, TileSource as _};

use crate::lab::{Lab, PoolSource};
use crate::terminal::Style;

/// Tokens of each text that are looked at.
pub const TOKENS: usize = 1024;
/// Fewer tokens than this tell nothing about a block's ranges.
const LEAST_TOKENS: usize = 4 * BLOCK_TOKENS;
/// The first tokens of a sequence travel raw and have ranges of their own kind.
const SKIPPED_BLOCKS: usize = 1;

/// The texts that the committed profile was made from.
const TEXTS: [(&str, &str); 3] = [
    (
        "code.py",
        include_str!("../../profiles/calibration/code.py"),
    ),
    (
        "prose.txt",
        include_str!("../../profiles/calibration/prose.txt"),
    ),
    (
        "service.log",
        include_str!("../../profiles/calibration/service.log"),
    ),
];

/// A text with its name.
#[derive(Clone, Debug)]
pub struct Text {
    /// For the progress and for errors.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The texts in these files; without any, the built-in ones.
///
/// # Errors
/// Where a file can't be read as text.
pub fn texts(files: &[PathBuf]) -> Result<Vec<Text>> {
    if files.is_empty() {
        return Ok(TEXTS
            .iter()
            .map(|&(name, text)| Text {
                name: name.to_owned(),
                text: text.to_owned(),
            })
            .collect());
    }
    let read = |file: &PathBuf| -> Result<Text> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("reading {} as text", file.display()))?;
        Ok(Text {
            name: file.display().to_string(),
            text,
        })
    };
    files.iter().map(read).collect()
}

/// The profile of the lab's model, from `texts`.
///
/// # Errors
/// Where a text is too short to tell anything.
pub fn profile(
    lab: &mut Lab,
    tokenizer: &Tokenizer,
    texts: &[Text],
    style: Style,
) -> Result<Profile> {
    let mut weights = Weights::new(lab.shape(), lab.model().config().group());
    for text in texts {
        let mut tokens = tokenizer.prompt(&text.text)?;
        tokens.truncate(TOKENS);
        ensure!(
            tokens.len() >= LEAST_TOKENS,
            "{} has {} tokens, and calibration needs {LEAST_TOKENS}: give a longer text",
            text.name,
            tokens.len()
        );
        let bar = style.progress(&text.name, tokens.len() as u64);
        lab.prefill(&tokens, &mut weights, |done| bar.set_position(done as u64))?;
        weights.add_ranges(lab, tokens.len());
        bar.finish_and_clear();
    }
    let name = lab.model().config().name.clone();
    let name = if name.is_empty() {
        "unnamed model".to_owned()
    } else {
        name
    };
    Ok(Profile::from_weights(
        &name,
        lab.shape(),
        &weights.products(),
    )?)
}

/// Sums over everything looked at, `[layer][head][channel]`.
#[derive(Debug)]
struct Weights {
    shape: KvShape,
    /// Query heads to a KV head.
    group: usize,
    queries: Vec<f64>,
    ranges: Vec<f64>,
}

impl Weights {
    fn new(shape: KvShape, group: usize) -> Self {
        let zeros = vec![0.0; shape.layers * shape.kv_heads * shape.head_dim];
        Self {
            shape,
            group,
            queries: zeros.clone(),
            ranges: zeros,
        }
    }

    /// Adds the squared range of every channel in every whole block.
    fn add_ranges(&mut self, lab: &mut Lab, tokens: usize) {
        let KvShape {
            layers,
            kv_heads,
            head_dim,
        } = self.shape;
        for layer in 0..layers {
            let (source, _) = lab.layer(layer, Kind::K);
            for head in 0..kv_heads {
                let channels = self.ranges[(layer * kv_heads + head) * head_dim..].iter_mut();
                let blocks = SKIPPED_BLOCKS..tokens / BLOCK_TOKENS;
                for (channel, sum) in channels.take(head_dim).enumerate() {
                    *sum += blocks
                        .clone()
                        .map(|block| range_of(&source, head, block, channel).powi(2))
                        .sum::<f64>();
                }
            }
        }
    }

    /// A constant factor doesn't change an order, so sums serve as means.
    fn products(&self) -> Vec<f64> {
        self.queries
            .iter()
            .zip(&self.ranges)
            .map(|(q, r)| q * r)
            .collect()
    }
}

impl Observer for Weights {
    fn wants_queries(&self) -> bool {
        true
    }

    fn queries(&mut self, layer: usize, queries: &[f32]) {
        let KvShape {
            kv_heads, head_dim, ..
        } = self.shape;
        let of_layer = &mut self.queries[layer * kv_heads * head_dim..][..kv_heads * head_dim];
        for row in queries.chunks_exact(kv_heads * self.group * head_dim) {
            for (head, query) in row.chunks_exact(head_dim).enumerate() {
                let sums = &mut of_layer[head / self.group * head_dim..][..head_dim];
                for (sum, &q) in sums.iter_mut().zip(query) {
                    *sum += f64::from(q).powi(2);
                }
            }
        }
    }
}

fn range_of(source: &PoolSource<'_>, head: usize, block: usize, channel: usize) -> f64 {
    let rows = source.rows(head, block);
    let values = rows.data[channel * rows.stride..][..BLOCK_TOKENS].iter();
    let values = values.map(|&bits| f64::from(f32::from_bits(u32::from(bits) << 16)));
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| {
        (least.min(x), most.max(x))
    });
    if most >= least { most - least } else { 0.0 }
}
