//! The embedded CPU engine: a real llama-architecture model on GGUF weights, batch-invariant.
//!
//! A model file is parsed ([`Gguf`]), judged ([`Config`]) and packed ([`Model`]); [`Model::forward`] runs new tokens of some
//! sequences through it, on [`Workers`], with their keys and values in a [`KvPool`]. It is a CPU engine for small models and
//! says no to whatever it does not do. No framework was used, because none computes a token's logits to the same bits whatever
//! it is batched with, which is what verifying a draft rests on.

mod adjust;
mod attention;
mod config;
mod engine;
mod forward;
mod gguf;
mod kv;
mod logprobs;
mod model;
#[cfg(test)]
mod noise;
mod panels;
mod prefix;
mod product;
mod quant;
mod sample;
mod simd;
mod speculate;
mod stop;
mod template;
#[cfg(test)]
mod testing;
mod tile;
mod tokenizer;
mod weights;
mod workers;

pub use adjust::Adjust;
pub use config::{Config, ConfigError};
pub use engine::{
    Bound, Engine, EngineEvent, EngineOptions, Exactness, KvSource, Longest, Request, RequestId,
    SequenceKv, SequenceKvMut, StartError, StepError, StepObserver, SubmitError, UnknownRequest,
};
pub use forward::{ForwardError, Logits, LogitsFor, Observer, Span};
pub use gguf::{Array, Gguf, GgufError, Tensor, Value};
pub use kv::{BLOCK_TOKENS, BlockId, KvLayout, KvPool, PoolError};
pub use logprobs::{Logprob, Logprobs};
pub use model::{Fingerprint, Model, OpenError, TokenId};
pub use prefix::{CachedBlock, PrefixChanges};
pub use quant::TensorType;
pub use sample::{Sampling, SamplingError};
pub use simd::Level;
pub use speculate::{
    Action, AnchorInfo, CHECKED_TOGETHER, Ending, FinishReason, Output, Speculation,
};
pub use stop::Stop;
pub use template::{ChatTemplate, Message, TemplateError};
pub use tokenizer::{
    EncodeError, PromptError, SpecialTexts, TextStream, Tokenizer, TokenizerError,
};
pub use weights::PackError;
pub use workers::{Workers, WorkersError};
