//! The `lynx` library behind the binary.

pub mod args;
pub mod baseline;
pub mod bench;
pub mod calibrate;
pub mod chat;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod lab;
pub mod model_file;
pub mod node;
pub mod profile;
pub mod prompts;
pub mod report;
pub mod rows;
pub mod run;
pub mod stats;
pub mod table;
pub mod terminal;
