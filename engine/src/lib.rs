//! The embedded CPU engine: a real llama-architecture model on GGUF weights, batch-invariant.
