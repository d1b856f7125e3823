//! Where the bytes of a file are: mapped, or already in memory.
#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe, because another process could change it under the map"
)]

use std::fmt;
use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use super::GgufError;

/// The bytes of a file.
pub(super) enum Contents {
    /// A read-only map, so that a model of several gigabytes is not copied just to be repacked.
    Mapped(Mmap),
    /// A buffer.
    Owned(Vec<u8>),
}

impl Contents {
    pub(super) fn map(path: &Path) -> Result<Self, GgufError> {
        let read = |source| GgufError::Read {
            path: path.display().to_string(),
            source,
        };
        let file = File::open(path).map_err(read)?;
        // SAFETY: the map is read-only and private to this process. That nobody shortens or rewrites a model file in place
        // while it is open is a documented requirement of `Gguf::open`.
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        Ok(Self::Mapped(map))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}
