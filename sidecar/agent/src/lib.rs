//! The agent: an engine's KV in and out, requests in, tokens out.
//!
//! A prefill agent has its engine compute prompts, splits their KV and sends it. A decode agent takes requests, has a
//! prefill agent send the KV, merges it into its engine's memory in order of significance, and passes on what the engine
//! says. What is decided is decided in `protocol` and `policy`; this crate carries it out.

pub mod method;
pub mod requests;
pub mod timeline;
