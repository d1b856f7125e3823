//! Machine code of the kernels: from a folder where it was built beforehand, or from NVRTC.
//!
//! The folder comes first: reading a file takes no time, and an image needs no compiler of 110 MB. It can't hold every head size
//! and every GPU to come, so that NVRTC, where it is installed, makes what isn't there. Not embedded in the program: all builds
//! for three GPUs are several MiB that only few machines need.

use core::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use lynx_gpu::Launch;
use lynx_kernels::Kind;
use sha2::{Digest as _, Sha256};

use crate::driver::nvrtc;

/// Where images of the agent have the kernels.
pub const DEFAULT_FOLDER: &str = "/usr/share/lynx/kernels";

/// The kernels and their headers, in the order of their names.
const SOURCES: [(&str, &str); 12] = [
    ("bits.cuh", include_str!("../../bits.cuh")),
    ("device.cuh", include_str!("../../device.cuh")),
    ("format.cuh", include_str!("../../format.cuh")),
    ("k.cuh", include_str!("../../k.cuh")),
    ("kernels.cu", include_str!("../../kernels.cu")),
    ("pack.cuh", include_str!("../../pack.cuh")),
    ("raw.cuh", include_str!("../../raw.cuh")),
    ("sum.cuh", include_str!("../../sum.cuh")),
    ("tail.cuh", include_str!("../../tail.cuh")),
    ("unit.cuh", include_str!("../../unit.cuh")),
    ("unpack.cuh", include_str!("../../unpack.cuh")),
    ("v.cuh", include_str!("../../v.cuh")),
];

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The folder's code is of other kernels than this program's, whose structures differ.
    #[error("those in {0} are of another version: build them anew with kernels/cuda/compile --out")]
    Other(PathBuf),
    /// A file can't be read.
    #[error("{path} can't be read")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no file for it, and no compiler.
    #[error(
        "{0} is missing, and so is NVRTC (libnvrtc.so) which could make it: mount the kernels, or install NVRTC"
    )]
    Missing(PathBuf),
    /// NVRTC has refused.
    #[error("NVRTC doesn't compile {build} for {architecture}: {said}")]
    Compiler {
        /// What was compiled.
        build: String,
        /// For which GPU.
        architecture: String,
        /// What it says.
        said: String,
    },
    /// A name that is no build.
    #[error("there is no build {0}")]
    Build(String),
}

/// Where machine code comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    folder: PathBuf,
}

impl Images {
    /// From this folder, and else from NVRTC.
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The machine code of a build for a GPU of this capability.
    ///
    /// # Errors
    /// Where neither the folder nor NVRTC has it.
    pub fn load(&self, build: &str, (major, minor): (u32, u32)) -> Result<Vec<u8>, ImageError> {
        let architecture = format!("sm_{major}{minor}");
        let path = self.folder.join(format!("{build}.{architecture}.cubin"));
        if let Some(code) = self.read(&path)? {
            return Ok(code);
        }
        if !nvrtc::is_present() {
            return Err(ImageError::Missing(path));
        }
        let defines = defines(build).ok_or_else(|| ImageError::Build(build.to_owned()))?;
        nvrtc::compile(&SOURCES, &defines, &architecture).map_err(|said| ImageError::Compiler {
            build: build.to_owned(),
            architecture,
            said,
        })
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, ImageError> {
        let unreadable = |source| ImageError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let code = match fs::read(path) {
            Ok(code) => code,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let digest = fs::read_to_string(self.folder.join("SOURCE")).map_err(unreadable)?;
        if digest.trim() == source_digest() {
            Ok(Some(code))
        } else {
            Err(ImageError::Other(self.folder.clone()))
        }
    }
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.folder.join("SOURCE").exists() {
            "built beforehand, in"
        } else {
            "made by NVRTC, as none are in"
        };
        write!(f, "kernels {from} {}", self.folder.display())
    }
}

/// What machine code was built from: the SHA-256 of the sources, in hexadecimal digits, as `kernels/cuda/compile` writes it.
pub fn source_digest() -> String {
    let mut hash = Sha256::new();
    for (_, text) in SOURCES {
        hash.update(text);
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The build that a launch needs, by its name in `variants.txt`.
pub fn build_name(launch: &Launch, half: bool) -> String {
    let kind = match launch.kind() {
        Kind::K => 'k',
        Kind::V => 'v',
    };
    let mut name = format!("{kind}{}", launch.channels());
    // FP16 has one build for both, which does for whole blocks too.
    if half {
        name += "-fp16";
    } else if launch.is_whole() {
        name += "-whole";
    }
    name
}

/// What is defined for a build of this name.
fn defines(build: &str) -> Option<Vec<String>> {
    let mut parts = build.split('-');
    let first = parts.next()?;
    let channels: u32 = first.get(1..)?.parse().ok()?;
    let mut defines = vec![format!("LYNX_DIM={channels}")];
    match first.get(..1)? {
        "k" => {}
        "v" => defines.push("LYNX_V".to_owned()),
        _ => return None,
    }
    for part in parts {
        match part {
            "whole" => defines.push("LYNX_WHOLE".to_owned()),
            "fp16" => defines.push("LYNX_FP16".to_owned()),
            planes => defines.push(format!("LYNX_PLANES={}", planes.parse::<u8>().ok()?)),
        }
    }
    Some(defines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_are_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                let extension = Path::new(name).extension();
                extension.is_some_and(|it| it == "cu" || it == "cuh")
            })
            .collect();
        found.sort();
        assert_eq!(found, SOURCES.map(|(name, _)| name));
    }

    #[test]
    fn the_table_of_builds_and_their_names_agree() {
        for line in include_str!("../../variants.txt").lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or("#");
            if name.starts_with(|first: char| first == '#' || first.is_uppercase()) {
                continue;
            }
            let mut expected: Vec<&str> = words.collect();
            expected.sort_unstable();
            let mut found = defines(name).unwrap();
            found.sort();
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(defines("w64"), None);
        assert_eq!(defines("k"), None);
    }

    #[test]
    fn code_of_other_kernels_is_refused_and_missing_code_named() {
        let folder = tempfile::tempdir().unwrap();
        let images = Images::new(folder.path().to_owned());
        fs::write(folder.path().join("k64.sm_90.cubin"), "code").unwrap();
        assert!(matches!(
            images.load("k64", (9, 0)),
            Err(ImageError::Unreadable { .. })
        ));
        fs::write(folder.path().join("SOURCE"), "another").unwrap();
        let refused = images.load("k64", (9, 0)).unwrap_err();
        assert!(refused.to_string().contains("another version"));
        fs::write(folder.path().join("SOURCE"), source_digest()).unwrap();
        assert_eq!(images.load("k64", (9, 0)).unwrap(), b"code");
    }
}
