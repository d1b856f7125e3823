//! The `lynx` library behind the binary.

pub mod agent;
pub mod args;
mod attended;
pub mod bench;
pub mod calibrate;
pub mod chat;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod engine;
pub mod lab;
pub mod model_file;
pub mod outputs;
pub mod prompts;
pub mod report;
pub mod rows;
pub mod run;
pub mod stats;
pub mod table;
pub mod terminal;
