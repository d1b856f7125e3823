//! Which model file a command runs on.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::config;

/// The default model's file name.
pub const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Its SHA-256.
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// The user's own model file, or the default one from the cache with its hash checked.
///
/// # Errors
/// Where the file is missing or is not the one it should be; the message says how to get it.
pub fn locate(own: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = own {
        if !path.is_file() {
            bail!(
                "{} is no file: --model takes a llama-architecture GGUF",
                path.display()
            );
        }
        return Ok(path.to_owned());
    }
    let path = config::cache_folder()?.join("models").join(FILE);
    if !path.is_file() {
        bail!(
            "the default model is not in the cache ({}): run `make model`, or give --model PATH",
            path.display()
        );
    }
    check(&path)?;
    Ok(path)
}

fn check(path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file
            .read(&mut buffer)
            .with_context(|| format!("reading {}", path.display()))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    let found: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if found == SHA256 {
        return Ok(());
    }
    bail!(
        "{} has SHA-256 {found}, and the default model has {SHA256}: delete it and run `make model`, or give --model PATH",
        path.display()
    )
}
