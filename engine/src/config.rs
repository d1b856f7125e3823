//! A model's numbers, and which models can be run.

use crate::gguf::{Gguf, Value};

/// The shape of a llama-architecture model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The model's name, as its file gives it; empty if it gives none.
    pub name: String,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Channels of a head: a multiple of 64.
    pub head_dim: usize,
    /// Channels of the residual stream.
    pub embedding: usize,
    /// Channels between the two halves of a feed-forward layer.
    pub feed_forward: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// The longest sequence the model was trained for, in tokens.
    pub context: usize,
    /// The base of the rotary embedding's wavelengths.
    pub rope_theta: f64,
    /// What is added to the mean square before its root is taken.
    pub norm_epsilon: f32,
}

/// Why a parsed file is not a model that can be run.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Another architecture.
    #[error(
        "architecture {found:?} cannot be run, only \"llama\" can (SmolLM2, TinyLlama, Llama 2, Mistral 0.2 and others)"
    )]
    Architecture {
        /// What the file says.
        found: String,
    },
    /// The file lacks a number or has one of another kind.
    #[error("the model file has no usable {key}: convert the model again")]
    Missing {
        /// The metadata key or tensor.
        key: String,
    },
    /// The file has a number that makes no sense.
    #[error("{key} is {value}, which makes no sense: convert the model again")]
    Nonsense {
        /// The metadata key.
        key: String,
        /// Its value.
        value: String,
    },
    /// The model needs something that this engine does not do.
    #[error("the model needs {feature}, which this engine does not do: use another model")]
    Unsupported {
        /// The feature, with the key or value that asks for it.
        feature: String,
    },
}

impl Config {
    /// Reads the numbers of a file and refuses what cannot be run.
    ///
    /// # Errors
    /// If the file is not of the llama architecture, lacks a number, or asks for a feature that is not supported.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ConfigError> {
        let architecture = gguf.string("general.architecture").unwrap_or_default();
        if architecture != "llama" {
            let found = architecture.to_owned();
            return Err(ConfigError::Architecture { found });
        }
        refuse_features(gguf)?;
        let embedding = number(gguf, "llama.embedding_length")?;
        let heads = number(gguf, "llama.attention.head_count")?;
        let kv_heads = match gguf.value("llama.attention.head_count_kv") {
            None => heads,
            Some(_) => number(gguf, "llama.attention.head_count_kv")?,
        };
        if heads % kv_heads != 0 {
            return Err(nonsense("llama.attention.head_count_kv", kv_heads));
        }
        let head_dim = match gguf.value("llama.attention.key_length") {
            None => embedding / heads,
            Some(_) => number(gguf, "llama.attention.key_length")?,
        };
        let config = Self {
            name: gguf.string("general.name").unwrap_or_default().to_owned(),
            layers: number(gguf, "llama.block_count")?,
            heads,
            kv_heads,
            head_dim,
            embedding,
            feed_forward: number(gguf, "llama.feed_forward_length")?,
            vocab: vocabulary(gguf)?,
            context: number(gguf, "llama.context_length")?,
            rope_theta: gguf.float("llama.rope.freq_base").unwrap_or(10_000.0),
            norm_epsilon: epsilon(gguf)?,
        };
        config.refuse_shapes(gguf)?;
        Ok(config)
    }

    /// Query heads per key and value head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The kernels work on 64 channels at a time, and on heads that all rotate all their channels.
    fn refuse_shapes(&self, gguf: &Gguf) -> Result<(), ConfigError> {
        for (what, length, most) in [
            ("heads", self.head_dim, 512),
            ("embeddings", self.embedding, 1 << 20),
            ("feed-forward layers", self.feed_forward, 1 << 20),
        ] {
            if length % 64 != 0 || length > most {
                let limit = format!("only multiples of 64 up to {most} can be run");
                return Err(unsupported(format!(
                    "{what} of {length} channels ({limit})"
                )));
            }
        }
        for key in ["llama.rope.dimension_count", "llama.attention.value_length"] {
            if gguf.value(key).is_some() && number(gguf, key)? != self.head_dim {
                return Err(unsupported(format!(
                    "a {key} that differs from the heads' {} channels",
                    self.head_dim
                )));
            }
        }
        let base = self.rope_theta;
        if !(base.is_finite() && base >= 1.0) {
            return Err(nonsense("llama.rope.freq_base", base));
        }
        Ok(())
    }
}

fn refuse_features(gguf: &Gguf) -> Result<(), ConfigError> {
    match gguf.string("llama.rope.scaling.type") {
        None | Some("none") => {}
        Some(kind) => {
            return Err(unsupported(format!(
                "rope scaling (llama.rope.scaling.type = {kind})"
            )));
        }
    }
    for key in [
        "llama.rope.scale_linear",
        "llama.rope.scaling.factor",
        "llama.attention.sliding_window",
        "llama.expert_count",
    ] {
        match gguf.value(key) {
            None | Some(Value::Unsigned(0)) => {}
            Some(Value::Float(factor)) if *factor == 1.0 => {}
            Some(value) => return Err(unsupported(format!("{key} = {value:?}"))),
        }
    }
    Ok(())
}

fn number(gguf: &Gguf, key: &str) -> Result<usize, ConfigError> {
    let value = gguf.unsigned(key).ok_or_else(|| ConfigError::Missing {
        key: key.to_owned(),
    })?;
    match u32::try_from(value) {
        Ok(number) if number > 0 => Ok(number as usize),
        _ => Err(nonsense(key, value)),
    }
}

fn vocabulary(gguf: &Gguf) -> Result<usize, ConfigError> {
    let key = "token_embd.weight";
    let shape = gguf.tensor(key).map(|tensor| tensor.shape.as_slice());
    match shape {
        Some([_, vocab]) if (1..=1 << 24).contains(vocab) => Ok(*vocab),
        _ => Err(ConfigError::Missing {
            key: key.to_owned(),
        }),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the file stores the number as a 32-bit float"
)]
fn epsilon(gguf: &Gguf) -> Result<f32, ConfigError> {
    let key = "llama.attention.layer_norm_rms_epsilon";
    match gguf.float(key) {
        Some(epsilon) if epsilon.is_finite() && epsilon > 0.0 => Ok(epsilon as f32),
        Some(epsilon) => Err(nonsense(key, epsilon)),
        None => Err(ConfigError::Missing {
            key: key.to_owned(),
        }),
    }
}

fn unsupported(feature: String) -> ConfigError {
    ConfigError::Unsupported { feature }
}

fn nonsense(key: &str, value: impl ToString) -> ConfigError {
    ConfigError::Nonsense {
        key: key.to_owned(),
        value: value.to_string(),
    }
}
