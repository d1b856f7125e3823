//! An engine process and an agent that is none: its side of the stream is the test's.

mod agent;
mod lifecycle;
mod long;
mod plain;
mod pool;
mod transfer;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use crate::opened::Opened;

pub(crate) use agent::{Agent, Link};

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Opened once for a whole test run.
static OPENED: LazyLock<Arc<Opened>> = LazyLock::new(|| {
    let path = model_path();
    let opened = Opened::open(&path);
    Arc::new(opened.unwrap_or_else(|error| panic!("{error}: run make model")))
});

/// The model that tests run: never skipped, always the same.
pub(crate) fn opened() -> Arc<Opened> {
    OPENED.clone()
}

/// `LYNX_MODEL`, or the model's place in `LYNX_CACHE`, or in the user's cache.
fn model_path() -> PathBuf {
    if let Some(path) = std::env::var_os("LYNX_MODEL") {
        return path.into();
    }
    let cache = std::env::var_os("LYNX_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/lynx"),
        PathBuf::from,
    );
    cache.join("models").join(MODEL)
}
