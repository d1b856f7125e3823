//! The `lynx` library behind the binary.

pub mod baseline;
pub mod prompts;
pub mod rows;
pub mod run;
pub mod stats;
pub mod table;
pub mod terminal;
