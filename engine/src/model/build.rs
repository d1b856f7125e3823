//! Writes whole models for tests, tiny and meaningless.

use crate::gguf::build::Builder;
use crate::noise::Noise;
use crate::quant::TensorType;

/// The shape of a tiny model.
#[derive(Clone, Copy)]
pub(crate) struct Tiny {
    pub(crate) kind: TensorType,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Whether the output has weights of its own.
    pub(crate) untied: bool,
}

impl Tiny {
    pub(crate) const LAYERS: usize = 2;
    pub(crate) const EMBEDDING: usize = 256;
    pub(crate) const FEED_FORWARD: usize = 512;
    pub(crate) const VOCAB: usize = 100;

    /// The model's file, to which more can be added.
    pub(crate) fn file(self) -> Builder {
        let number = |value: usize| u32::try_from(value).unwrap();
        let mut builder = Builder::default()
            .string("general.architecture", "llama")
            .string("general.name", "tiny")
            .unsigned("llama.block_count", number(Self::LAYERS))
            .unsigned("llama.context_length", 1000)
            .unsigned("llama.embedding_length", number(Self::EMBEDDING))
            .unsigned("llama.feed_forward_length", number(Self::FEED_FORWARD))
            .unsigned("llama.attention.head_count", number(self.heads))
            .unsigned("llama.attention.head_count_kv", number(self.kv_heads))
            .unsigned("llama.attention.key_length", number(self.head_dim))
            .float("llama.attention.layer_norm_rms_epsilon", 1e-5);
        let mut noise = Noise(6);
        for layer in 0..Self::LAYERS {
            for (part, inputs, outputs) in self.matrices() {
                let name = format!("blk.{layer}.{part}.weight");
                let bytes = noise.tensor(self.kind, &[inputs, outputs]);
                builder = builder.tensor(&name, self.kind, &[inputs, outputs], &bytes);
            }
            for part in ["attn_norm", "ffn_norm"] {
                builder = norm(builder, &format!("blk.{layer}.{part}.weight"), &mut noise);
            }
        }
        builder = norm(builder, "output_norm.weight", &mut noise);
        let shape = [Self::EMBEDDING, Self::VOCAB];
        let tables = ["token_embd.weight", "output.weight"];
        for name in &tables[..1 + usize::from(self.untied)] {
            builder = builder.tensor(name, self.kind, &shape, &noise.tensor(self.kind, &shape));
        }
        builder
    }

    fn matrices(self) -> [(&'static str, usize, usize); 7] {
        let queries = self.heads * self.head_dim;
        let keys = self.kv_heads * self.head_dim;
        [
            ("attn_q", Self::EMBEDDING, queries),
            ("attn_k", Self::EMBEDDING, keys),
            ("attn_v", Self::EMBEDDING, keys),
            ("attn_output", queries, Self::EMBEDDING),
            ("ffn_gate", Self::EMBEDDING, Self::FEED_FORWARD),
            ("ffn_up", Self::EMBEDDING, Self::FEED_FORWARD),
            ("ffn_down", Self::FEED_FORWARD, Self::EMBEDDING),
        ]
    }
}

fn norm(builder: Builder, name: &str, noise: &mut Noise) -> Builder {
    let bytes: Vec<u8> = (0..Tiny::EMBEDDING)
        .flat_map(|_| (1.0 + noise.float() / 4.0).to_le_bytes())
        .collect();
    builder.tensor(name, TensorType::F32, &[Tiny::EMBEDDING], &bytes)
}
