//! GGUF: the one file that holds a model's weights, its numbers and its tokenizer.
//!
//! The parser is strict, because a model file comes from a download: every count and every length is checked against the
//! bytes that are there before anything is allocated for it, and a file that is cut short, altered or of another kind gives
//! a [`GgufError`] that names the spot. The parser knows the container only. What a tensor's bytes mean is the business of
//! [`crate::quant`], and which models can run is decided by [`crate::Config`].
//!
//! The layout follows the public description of the format, versions 2 and 3, little-endian.

mod file;
mod parse;
mod reader;

#[cfg(test)]
pub(crate) mod build;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::quant::TensorType;
use file::Contents;

/// A parsed file: its metadata, its list of tensors, and their bytes.
#[derive(Debug)]
pub struct Gguf {
    contents: Contents,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
}

/// A metadata value. The sizes of the file's integers and floats are dropped, their kind is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer of 8 to 64 bits.
    Unsigned(u64),
    /// A signed integer of 8 to 64 bits.
    Signed(i64),
    /// A float of 32 or 64 bits.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(String),
    /// A list of values of one kind.
    Array(Array),
}

/// A list of metadata values. Lists of lists do not occur in model files and are refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned integers.
    Unsigned(Vec<u64>),
    /// Signed integers, such as the kinds of the tokenizer's tokens.
    Signed(Vec<i64>),
    /// Floats, such as the scores of the tokenizer's tokens.
    Float(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts, such as the tokenizer's tokens and merges.
    String(Vec<String>),
}

/// Where a tensor lies in the file, and how its numbers are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Lengths, the fastest-running dimension first: a matrix of `n` outputs over `k` inputs is `[k, n]`.
    pub shape: Vec<usize>,
    /// The storage type.
    pub kind: TensorType,
    start: usize,
    bytes: usize,
}

impl Tensor {
    /// How many bytes the tensor takes in the file.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }
}

impl Gguf {
    /// Maps a file and parses it. The file must not be changed while the value lives.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a complete GGUF file of a version that is known.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        Self::from_contents(Contents::map(path)?)
    }

    /// Parses a file that is already in memory.
    ///
    /// # Errors
    /// If the bytes are not a complete GGUF file of a version that is known.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::from_contents(Contents::Owned(bytes))
    }

    fn from_contents(contents: Contents) -> Result<Self, GgufError> {
        let (metadata, tensors) = parse::parse(contents.bytes())?;
        Ok(Self {
            contents,
            metadata,
            tensors,
        })
    }

    /// The whole file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.contents.bytes()
    }

    /// All metadata, by key.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// The metadata value of a key, if the file has it.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// The text of a key, if the file has it and it is a text.
    #[must_use]
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The non-negative integer of a key, if the file has it and it is one.
    #[must_use]
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The float of a key, if the file has it and it is one.
    #[must_use]
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The truth value of a key, if the file has it and it is one.
    #[must_use]
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The list of texts of a key, if the file has it and it is one.
    #[must_use]
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.value(key)? {
            Value::Array(Array::String(texts)) => Some(texts),
            _ => None,
        }
    }

    /// The list of signed integers of a key, if the file has it and it is one.
    #[must_use]
    pub fn integers(&self, key: &str) -> Option<&[i64]> {
        match self.value(key)? {
            Value::Array(Array::Signed(numbers)) => Some(numbers),
            _ => None,
        }
    }

    /// All tensors, by name.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// A tensor by name, if the file has it.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// The bytes of one of this file's tensors; empty for a tensor that came from another, longer file.
    #[must_use]
    pub fn tensor_bytes(&self, tensor: &Tensor) -> &[u8] {
        let end = tensor.start.saturating_add(tensor.bytes);
        self.bytes().get(tensor.start..end).unwrap_or_default()
    }
}

/// Why a file could not be parsed.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be opened or mapped.
    #[error("cannot read {path}: check that the file is there and readable")]
    Read {
        /// The path that was tried.
        path: String,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The first four bytes are not those of a GGUF file.
    #[error(
        "this is not a GGUF file (it starts with {start:02x?}): give the path of a .gguf model"
    )]
    NotGguf {
        /// The first bytes of the file.
        start: Vec<u8>,
    },
    /// A version of the format that is not known here.
    #[error(
        "GGUF version {version} is not known, only 2 and 3 are: convert the model with a current converter"
    )]
    Version {
        /// The version that the file claims; a big-endian file shows up here too.
        version: u32,
    },
    /// The file ends before something that it announces.
    #[error(
        "the file ends inside {what}: {need} bytes are needed, {left} are left; download it again"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// How many bytes were needed.
        need: u64,
        /// How many bytes were left.
        left: u64,
    },
    /// Something in the file contradicts the format.
    #[error("{what}: {problem}; the file is damaged or of another kind, download it again")]
    Malformed {
        /// The part of the file that is wrong.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor is stored in a type that is not known here.
    #[error(
        "tensor {tensor} has storage type {code}, which cannot be read; use a file of type {}",
        TensorType::NAMES
    )]
    TensorType {
        /// The tensor's name.
        tensor: String,
        /// The type's number in the file.
        code: u32,
    },
}
