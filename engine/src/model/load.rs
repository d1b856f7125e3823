//! From a parsed file to packed weights.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{Embedding, Fingerprint, Layer, Model, OpenError};
use crate::config::{Config, ConfigError};
use crate::gguf::Gguf;
use crate::weights::{FileRows, Matrix, PackError};

impl Model {
    /// Packs the weights of a parsed file. The file is not needed afterwards.
    ///
    /// # Errors
    /// If the file's model cannot be run, or a tensor is missing, superfluous or misshapen.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, OpenError> {
        let config = Config::from_gguf(gguf)?;
        let mut tensors = Tensors {
            gguf,
            used: BTreeSet::new(),
        };
        let layers = (0..config.layers)
            .map(|layer| tensors.layer(&config, layer))
            .collect::<Result<_, _>>()?;
        let (columns, vocab) = (config.embedding, config.vocab);
        let rows = tensors.rows("token_embd.weight", columns, vocab)?;
        let embedding = Embedding {
            kind: rows.kind,
            bytes: rows.bytes.to_vec(),
            columns,
        };
        // Small models use the token embeddings a second time, to score the next token.
        let output = match gguf.tensor("output.weight") {
            Some(_) => "output.weight",
            None => "token_embd.weight",
        };
        let output = tensors.matrix(output, columns, vocab)?;
        let output_norm = tensors.vector("output_norm.weight", columns)?;
        tensors.refuse_rest()?;
        Ok(Self {
            config,
            layers,
            embedding,
            output_norm,
            output,
            fingerprint: Fingerprint(Sha256::digest(gguf.bytes()).into()),
        })
    }
}

/// A file's tensors, with a note of those that have been used: a tensor that nothing uses is a feature that is not there.
struct Tensors<'a> {
    gguf: &'a Gguf,
    used: BTreeSet<String>,
}

impl<'a> Tensors<'a> {
    fn layer(&mut self, config: &Config, layer: usize) -> Result<Layer, OpenError> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (embedding, feed_forward) = (config.embedding, config.feed_forward);
        let queries = config.heads * config.head_dim;
        let keys = config.kv_heads * config.head_dim;
        Ok(Layer {
            attention_norm: self.vector(&name("attn_norm"), embedding)?,
            query: self.rotary(&name("attn_q"), config, queries)?,
            key: self.rotary(&name("attn_k"), config, keys)?,
            value: self.matrix(&name("attn_v"), embedding, keys)?,
            attention_output: self.matrix(&name("attn_output"), queries, embedding)?,
            feed_forward_norm: self.vector(&name("ffn_norm"), embedding)?,
            gate: self.matrix(&name("ffn_gate"), embedding, feed_forward)?,
            up: self.matrix(&name("ffn_up"), embedding, feed_forward)?,
            down: self.matrix(&name("ffn_down"), feed_forward, embedding)?,
        })
    }

    fn matrix(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, OpenError> {
        let rows = self.rows(name, inputs, outputs)?;
        rows.pack(|output| output)
            .map_err(|source| wrong(name, source))
    }

    /// A projection whose outputs are rotated. The file has the two channels of a pair side by side; in half-split order,
    /// which the KV cache is kept in, channel `i` pairs with channel `i + head_dim / 2`.
    fn rotary(&mut self, name: &str, config: &Config, outputs: usize) -> Result<Matrix, OpenError> {
        let rows = self.rows(name, config.embedding, outputs)?;
        let half = config.head_dim / 2;
        let order = |output: usize| {
            let (head, channel) = (output / config.head_dim, output % config.head_dim);
            head * config.head_dim + channel % half * 2 + channel / half
        };
        rows.pack(order).map_err(|source| wrong(name, source))
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, OpenError> {
        let (kind, bytes) = self.take(name, &[length])?;
        let mut floats = vec![0.0; length];
        kind.decode(bytes, &mut floats);
        Ok(floats)
    }

    fn rows(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<FileRows<'a>, OpenError> {
        let (kind, bytes) = self.take(name, &[inputs, outputs])?;
        Ok(FileRows {
            kind,
            inputs,
            outputs,
            bytes,
        })
    }

    fn take(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(crate::TensorType, &'a [u8]), OpenError> {
        let tensor = self.gguf.tensor(name).ok_or_else(|| ConfigError::Missing {
            key: format!("tensor {name}"),
        })?;
        if tensor.shape != shape {
            let (found, expected) = (tensor.shape.clone(), shape.to_vec());
            return Err(wrong(name, PackError::Shape { found, expected }));
        }
        self.used.insert(name.to_owned());
        Ok((tensor.kind, self.gguf.tensor_bytes(tensor)))
    }

    fn refuse_rest(&self) -> Result<(), OpenError> {
        match self
            .gguf
            .tensors()
            .keys()
            .find(|name| !self.used.contains(*name))
        {
            None => Ok(()),
            Some(name) => Err(ConfigError::Unsupported {
                feature: format!("tensor {name}"),
            }
            .into()),
        }
    }
}

fn wrong(tensor: &str, source: PackError) -> OpenError {
    OpenError::Tensor {
        tensor: tensor.to_owned(),
        source,
    }
}
