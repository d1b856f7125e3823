//! `lynx bench`: what Lynx claims, measured.

pub mod accuracy;
pub mod codec;
pub mod gpu;
pub mod link;
pub mod peer;
pub mod print;
pub mod soak;
pub mod ttft;
pub mod turns;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The seed of every bench's prompts.
pub const SEED: u64 = 20_260_101;

/// Writes rows as a JSON array, one a line.
///
/// # Errors
/// Where the file can't be written.
pub fn write_json<R: Serialize>(path: &Path, rows: &[R]) -> Result<()> {
    let lines: Vec<String> = rows
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<_, _>>()?;
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
