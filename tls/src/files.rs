//! The three files, as bytes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::LoadError;

/// The certificate and its intermediates, leaf first.
pub const CERTIFICATE_FILE: &str = "tls.crt";
/// The certificate's private key.
pub const KEY_FILE: &str = "tls.key";
/// The certificates of the authorities whose peers are trusted, one or more.
pub const CA_FILE: &str = "ca.crt";

/// A file's size that no honest one reaches: a chain of some certificates is a few KiB.
const MOST: u64 = 1 << 20;

/// What the files hold, unparsed. Compared byte by byte to see a change.
#[derive(Clone, PartialEq, Eq)]
pub struct Files {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) ca: Vec<u8>,
}

impl Files {
    /// Reads all three from one directory, of one moment where Kubernetes swaps them: a mounted Secret is a link to a
    /// directory of its generation, which is followed once for all three.
    ///
    /// # Errors
    /// One can't be read, or is too large to be what it should be.
    pub fn read(directory: &Path) -> Result<Self, LoadError> {
        let generation = directory.join("..data");
        let directory = fs::canonicalize(generation).unwrap_or_else(|_| directory.to_owned());
        Ok(Self {
            chain: read(directory.join(CERTIFICATE_FILE))?,
            key: read(directory.join(KEY_FILE))?,
            ca: read(directory.join(CA_FILE))?,
        })
    }

    /// The same from memory.
    pub fn new(chain: &[u8], key: &[u8], ca: &[u8]) -> Self {
        Self {
            chain: chain.to_owned(),
            key: key.to_owned(),
            ca: ca.to_owned(),
        }
    }
}

fn read(path: PathBuf) -> Result<Vec<u8>, LoadError> {
    let read = fs::metadata(&path).and_then(|metadata| {
        if metadata.is_file() && metadata.len() <= MOST {
            fs::read(&path).map(Some)
        } else {
            Ok(None)
        }
    });
    match read {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(LoadError::NotAFile { path }),
        Err(source) => Err(LoadError::Unreadable { path, source }),
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key's bytes are nobody's to print.
        f.debug_struct("Files")
            .field("chain_bytes", &self.chain.len())
            .field("ca_bytes", &self.ca.len())
            .finish_non_exhaustive()
    }
}
