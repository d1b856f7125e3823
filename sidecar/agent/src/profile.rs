//! Which profile an agent works with.

use std::io;
use std::path::{Path, PathBuf};

use lynx_kernels::{KvShape, Profile, ProfileError, ShapeError};
use lynx_proto::engine::v1::Attach;

/// The default model's profile: what `make profile` makes.
pub const BUILT_IN: &str = include_str!("../../../profiles/smollm2-135m-instruct.json");

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// The file can't be read.
    #[error("the profile {path} can't be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is no profile.
    #[error("{path} is no profile")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ProfileError,
    },
    /// The file is another model's.
    #[error(
        "{path} is the profile of a model with {} layers, {} KV heads and {} channels, and this model has {}, {} and {}: run `lynx calibrate` on this model",
        .found.layers, .found.kv_heads, .found.head_dim, .wanted.layers, .wanted.kv_heads, .wanted.head_dim
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The shape that it is for.
        found: KvShape,
        /// The model's shape.
        wanted: KvShape,
    },
    /// There are no uniform widths for such a model.
    #[error("the model's KV can't be coded")]
    Shape(#[source] ShapeError),
}

/// The name that an engine's profile has.
pub fn named_by(engine: &Attach) -> &str {
    if engine.weights.is_empty() {
        &engine.model
    } else {
        &engine.weights
    }
}

/// The user's own profile; without one the built-in one where it is that of `model`, else uniform widths.
///
/// # Errors
/// Where the file is no profile, or that of a model of another shape.
pub fn choose(own: Option<&Path>, model: &str, shape: KvShape) -> Result<Profile, ChooseError> {
    let Some(path) = own else {
        return match Profile::from_json(BUILT_IN) {
            Ok(built_in) if built_in.name() == model && built_in.shape() == shape => Ok(built_in),
            _ => Profile::uniform(shape).map_err(ChooseError::Shape),
        };
    };
    let profile = read(path)?;
    let found = profile.shape();
    if found == shape {
        Ok(profile)
    } else {
        Err(ChooseError::OtherModel {
            path: path.to_owned(),
            found,
            wanted: shape,
        })
    }
}

/// The profile in this file, of whatever model.
///
/// # Errors
/// Where the file is no profile.
pub fn read(path: &Path) -> Result<Profile, ChooseError> {
    let path = path.to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(ChooseError::Read { path, source }),
    };
    Profile::from_json(&text).map_err(|source| ChooseError::Parse { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of_built_in() -> KvShape {
        Profile::from_json(BUILT_IN).unwrap().shape()
    }

    #[test]
    fn the_built_in_profile_is_for_its_own_model_alone() {
        let (built_in, shape) = (Profile::from_json(BUILT_IN).unwrap(), shape_of_built_in());
        let chosen = choose(None, built_in.name(), shape).unwrap();
        assert_eq!(chosen.name(), built_in.name());
        let other = choose(None, "another", shape).unwrap();
        assert_ne!(other.name(), built_in.name());
    }

    #[test]
    fn a_file_that_does_not_fit_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let missing = choose(Some(&path), "", shape_of_built_in()).unwrap_err();
        assert!(matches!(missing, ChooseError::Read { .. }), "{missing}");
        std::fs::write(&path, "{}").unwrap();
        let none = choose(Some(&path), "", shape_of_built_in()).unwrap_err();
        assert!(matches!(none, ChooseError::Parse { .. }), "{none}");
        std::fs::write(&path, BUILT_IN).unwrap();
        let mut shape = shape_of_built_in();
        shape.layers += 1;
        let other = choose(Some(&path), "", shape).unwrap_err();
        assert!(other.to_string().contains("lynx calibrate"), "{other}");
    }
}
