//! The one place that reads the environment.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// Where downloaded files are kept: `$LYNX_CACHE`, or `~/.cache/lynx`.
///
/// # Errors
/// Where neither variable tells a folder.
#[expect(
    clippy::disallowed_methods,
    reason = "the one reader of the environment"
)]
pub fn cache_folder() -> Result<PathBuf> {
    if let Ok(folder) = std::env::var("LYNX_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    let home = std::env::var("HOME")
        .context("neither LYNX_CACHE nor HOME is set: set LYNX_CACHE to a folder for the model")?;
    Ok(PathBuf::from(home).join(".cache/lynx"))
}

/// How many CPUs this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the user wants no colours: `NO_COLOR` is set to anything but nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "the one reader of the environment"
)]
pub fn no_color() -> bool {
    std::env::var("NO_COLOR").is_ok_and(|value| !value.is_empty())
}
