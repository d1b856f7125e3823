//! A model in memory: its weights, packed, and its identity.

#[cfg(test)]
pub(crate) mod build;
mod load;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use crate::config::{Config, ConfigError};
use crate::gguf::{Gguf, GgufError};
use crate::panels::{PANEL, Panels};
use crate::quant::TensorType;
use crate::weights::{Matrix, PackError};

/// A token of a model's vocabulary.
pub type TokenId = u32;

/// A model that can be run; see [`Model::forward`].
///
/// ```no_run
/// # use std::num::NonZeroUsize;
/// # use lynx_engine::{BlockId, KvPool, Logits, LogitsFor, Model, Span, Workers};
/// let model = Model::open("model.gguf".as_ref())?;
/// let workers = Workers::new(NonZeroUsize::MIN)?;
/// let mut pool = KvPool::new(model.config(), 16);
/// let mut logits = Logits::default();
/// let span = Span {
///     tokens: &[504, 3575, 282, 4649, 314],
///     start: 0,
///     blocks: &[BlockId(0)],
///     logits: LogitsFor::Last,
/// };
/// model.forward(&workers, &mut pool, &[span], &mut (), &mut logits)?;
/// let best = logits.row(0).iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Model {
    pub(crate) config: Config,
    pub(crate) layers: Vec<Layer>,
    pub(crate) embedding: Embedding,
    pub(crate) output_norm: Vec<f32>,
    pub(crate) output: Matrix,
    fingerprint: Fingerprint,
}

/// One transformer layer.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: Matrix,
    pub(crate) key: Matrix,
    pub(crate) value: Matrix,
    pub(crate) attention_output: Matrix,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

/// The token embeddings as the file stores them: a token's row is read alone, which the packed form is bad at. Where the
/// output shares them, they are in memory twice.
pub(crate) struct Embedding {
    kind: TensorType,
    bytes: Vec<u8>,
    /// Room for one row.
    columns: usize,
}

/// Which model this is: the SHA-256 of its whole file, so that two nodes whose models differ in one bit find out.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// Why a model could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not a complete GGUF file.
    #[error("cannot open the model file: {0}")]
    Gguf(#[from] GgufError),
    /// The file is one, but not of a model that can be run.
    #[error("cannot run this model: {0}")]
    Config(#[from] ConfigError),
    /// A tensor cannot be used.
    #[error("cannot use tensor {tensor}: {source}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        source: PackError,
    },
}

impl Model {
    /// Opens a model file.
    ///
    /// # Errors
    /// If the file is not a complete GGUF file, or its model cannot be run.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::from_gguf(&Gguf::open(path)?)
    }

    /// The model's numbers.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The model's identity.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The memory that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let layers = self.layers.iter().flat_map(Layer::matrices);
        layers
            .chain([&self.output])
            .map(Matrix::bytes)
            .sum::<usize>()
            + self.embedding.bytes.len()
    }
}

impl Layer {
    fn matrices(&self) -> [&Matrix; 7] {
        [
            &self.query,
            &self.key,
            &self.value,
            &self.attention_output,
            &self.gate,
            &self.up,
            &self.down,
        ]
    }
}

impl Embedding {
    /// Writes a token's embedding into row `row`. The token must exist.
    pub(crate) fn read(&self, token: TokenId, into: &mut Panels, row: usize) {
        let length = self.columns / self.kind.block() * self.kind.block_bytes();
        let bytes = &self.bytes[token as usize * length..][..length];
        let mut floats = vec![0.0; self.columns];
        self.kind.decode(bytes, &mut floats);
        for (panel, floats) in floats.as_chunks::<PANEL>().0.iter().enumerate() {
            *into.row_mut(panel, row) = *floats;
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
