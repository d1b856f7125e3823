//! The architecture written down as simply as possible: double precision but for the keys and values, the whole sequence at
//! once, rotation on interleaved pairs as the file has them. It shares nothing with the engine but the decoding of the storage
//! types.

use half::bf16;

use crate::gguf::Gguf;
use crate::{Config, TokenId};

struct Naive<'a> {
    gguf: &'a Gguf,
    config: Config,
}

type Rows = Vec<Vec<f64>>;

/// The logits of every token.
pub(super) fn logits(gguf: &Gguf, tokens: &[TokenId]) -> Rows {
    let config = Config::from_gguf(gguf).unwrap();
    let naive = Naive { gguf, config };
    let embeddings = naive.tensor("token_embd.weight");
    let mut x: Rows = tokens
        .iter()
        .map(|&token| embeddings[token as usize].clone())
        .collect();
    for layer in 0..naive.config.layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let normed = naive.norm(&x, &name("attn_norm"));
        let attended = naive.attend(&normed, &name);
        add(&mut x, &naive.multiply(&attended, &name("attn_output")));
        let normed = naive.norm(&x, &name("ffn_norm"));
        let mut gate = naive.multiply(&normed, &name("ffn_gate"));
        let up = naive.multiply(&normed, &name("ffn_up"));
        for (gate, up) in gate.iter_mut().flatten().zip(up.iter().flatten()) {
            *gate = *gate / (1.0 + (-*gate).exp()) * up;
        }
        add(&mut x, &naive.multiply(&gate, &name("ffn_down")));
    }
    let normed = naive.norm(&x, "output_norm.weight");
    let output = match gguf.tensor("output.weight") {
        Some(_) => "output.weight",
        None => "token_embd.weight",
    };
    naive.multiply(&normed, output)
}

fn add(x: &mut Rows, y: &Rows) {
    for (x, y) in x.iter_mut().flatten().zip(y.iter().flatten()) {
        *x += y;
    }
}

/// Numbers as the engine's cache keeps them.
fn rounded(mut rows: Rows) -> Rows {
    for number in rows.iter_mut().flatten() {
        *number = bf16::from_f64(*number).to_f64();
    }
    rows
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Naive<'_> {
    fn tensor(&self, name: &str) -> Rows {
        let tensor = self.gguf.tensor(name).unwrap();
        let mut floats = vec![0.0; tensor.shape.iter().product()];
        tensor
            .kind
            .decode(self.gguf.tensor_bytes(tensor), &mut floats);
        let rows = floats.chunks_exact(tensor.shape[0]);
        rows.map(|row| row.iter().copied().map(f64::from).collect())
            .collect()
    }

    fn multiply(&self, x: &Rows, name: &str) -> Rows {
        let weights = self.tensor(name);
        x.iter()
            .map(|x| weights.iter().map(|row| dot(row, x)).collect())
            .collect()
    }

    fn norm(&self, x: &Rows, name: &str) -> Rows {
        let weights = &self.tensor(name)[0];
        let norm = |x: &Vec<f64>| {
            let mean = dot(x, x) / x.len() as f64 + f64::from(self.config.norm_epsilon);
            x.iter()
                .zip(weights)
                .map(|(x, w)| x / mean.sqrt() * w)
                .collect()
        };
        x.iter().map(norm).collect()
    }

    /// A projection's heads, turned by their positions.
    fn rotated(&self, x: &Rows, name: &str) -> Rows {
        let mut rows = self.multiply(x, name);
        for (position, row) in rows.iter_mut().enumerate() {
            for head in row.chunks_exact_mut(self.config.head_dim) {
                let channels = head.len() as f64;
                for (i, pair) in head.chunks_exact_mut(2).enumerate() {
                    let angle =
                        position as f64 * self.config.rope_theta.powf(-2.0 * i as f64 / channels);
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = a * angle.cos() - b * angle.sin();
                    pair[1] = a * angle.sin() + b * angle.cos();
                }
            }
        }
        rows
    }

    fn attend(&self, x: &Rows, name: &impl Fn(&str) -> String) -> Rows {
        let channels = self.config.head_dim;
        let queries = self.rotated(x, &name("attn_q"));
        let keys = rounded(self.rotated(x, &name("attn_k")));
        let values = rounded(self.multiply(x, &name("attn_v")));
        let head_of = |row: &[f64], head: usize| row[head * channels..][..channels].to_vec();
        let attend = |(last, queries): (usize, &Vec<f64>)| {
            let mut out = vec![0.0; queries.len()];
            for (head, out) in out.chunks_exact_mut(channels).enumerate() {
                let (query, kv) = (head_of(queries, head), head / self.config.group());
                let score = |key: &Vec<f64>| {
                    (dot(&query, &head_of(key, kv)) / (channels as f64).sqrt()).exp()
                };
                let weights: Vec<f64> = keys[..=last].iter().map(score).collect();
                let total: f64 = weights.iter().sum();
                for (weight, value) in weights.iter().zip(&values) {
                    for (out, value) in out.iter_mut().zip(head_of(value, kv)) {
                        *out += weight / total * value;
                    }
                }
            }
            out
        };
        queries.iter().enumerate().map(attend).collect()
    }
}
