//! The agent: an engine's KV in and out, requests in, tokens out.
//!
//! A prefill agent has its engine compute prompts, splits their KV and sends it. A decode agent takes requests, has a
//! prefill agent send the KV, merges it into its engine's memory in order of significance, and passes on what the engine
//! says. What is decided is decided in `protocol` and `policy`; this crate carries it out.

pub mod baseline;
#[cfg(test)]
mod by_engine;
pub mod carriage;
mod choice;
pub mod clients;
pub mod clock;
pub mod coding;
pub mod command;
pub mod config;
pub mod control;
pub mod counters;
pub mod decode;
mod descriptors;
pub mod doctor;
pub mod drafting;
pub mod drain;
pub mod http;
pub mod identity;
mod integrity;
pub mod memory;
pub mod method;
pub mod metrics;
#[cfg(test)]
mod on_gpu;
pub mod peers;
pub mod pool;
pub mod prefill;
mod prefix;
pub mod profile;
pub mod requests;
pub mod run;
pub mod security;
mod seldom;
pub mod session;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod upstream;
