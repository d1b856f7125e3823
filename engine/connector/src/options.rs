//! What an engine process is told at its start.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use lynx_telemetry::Settings;

/// What the engine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It computes prompts whose KV the agent sends.
    Prefill,
    /// It answers requests whose KV the agent receives.
    Decode,
}

impl Role {
    /// The role's name, as configurations and traces have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// An engine process.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model: a llama-architecture GGUF file.
    pub model: PathBuf,
    /// The model's name as clients ask for it; `None` for the one in the file.
    pub served_name: Option<String>,
    /// What the engine is for.
    pub role: Role,
    /// The Unix socket on which the agent listens.
    pub socket: PathBuf,
    /// A folder that agent and engine share, in memory if possible: the KV pool's file lies in it.
    pub shared_directory: PathBuf,
    /// The file's name: plain, without a slash, and this engine's alone.
    pub pool_file: String,
    /// Threads of the forward pass.
    pub threads: NonZeroUsize,
    /// KV blocks of 64 tokens, for all requests and the prefix cache together.
    pub kv_blocks: u32,
    /// The longest sequence, prompt and output, in tokens; what the model's context or the blocks don't hold is cut off.
    pub max_tokens: u32,
    /// How many prompt tokens are evaluated in one step.
    pub chunk_tokens: u32,
    /// How many tokens are drafted for one request at most, whatever the agent says.
    pub max_draft: u32,
    /// Logs and traces.
    pub telemetry: Settings,
}
