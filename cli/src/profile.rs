//! Which profile a command runs with.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use lynx_kernels::{KvShape, Profile};

/// The default model's profile: what `make profile` makes.
pub(crate) const BUILT_IN: &str = include_str!("../../profiles/smollm2-135m-instruct.json");

/// The user's own profile; without one the built-in one where it is that of `model`, else uniform widths.
///
/// # Errors
/// Where the file is no profile, or that of a model of another shape.
pub fn choose(own: Option<&Path>, model: &str, shape: KvShape) -> Result<Profile> {
    let Some(path) = own else {
        let built_in = Profile::from_json(BUILT_IN)?;
        let fits = built_in.name() == model && built_in.shape() == shape;
        return if fits {
            Ok(built_in)
        } else {
            Ok(Profile::uniform(shape)?)
        };
    };
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let profile =
        Profile::from_json(&text).with_context(|| format!("{} is no profile", path.display()))?;
    let found = profile.shape();
    ensure!(
        found == shape,
        "{} is the profile of a model with {} layers, {} KV heads and {} channels, and this model has {}, {} and {}: run `lynx calibrate` on this model",
        path.display(),
        found.layers,
        found.kv_heads,
        found.head_dim,
        shape.layers,
        shape.kv_heads,
        shape.head_dim
    );
    Ok(profile)
}
