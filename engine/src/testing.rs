//! The model that tests run: never skipped, always the same.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use crate::{Gguf, Model};

const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Loaded once for a whole test run, since tests only read it.
static MODEL: LazyLock<Arc<Model>> =
    LazyLock::new(|| Arc::new(Model::from_gguf(&test_model_gguf()).unwrap()));

/// The model, packed.
pub(crate) fn test_model() -> Arc<Model> {
    MODEL.clone()
}

/// The model's file, parsed.
pub(crate) fn test_model_gguf() -> Gguf {
    let path = test_model_path();
    Gguf::open(&path).unwrap_or_else(|error| panic!("{error} ({}): run make model", path.display()))
}

/// `LYNX_MODEL`, or the model's place in `LYNX_CACHE`, or in the user's cache.
pub(crate) fn test_model_path() -> PathBuf {
    if let Some(path) = std::env::var_os("LYNX_MODEL") {
        return path.into();
    }
    let cache = std::env::var_os("LYNX_CACHE").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/lynx"),
        PathBuf::from,
    );
    cache.join("models").join(NAME)
}
