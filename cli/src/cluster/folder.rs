//! Where the nodes of this machine keep what they share: sockets, configurations, KV pools.
//!
//! In memory, because KV pools that a disk had to follow would be slow ones. Dropping a [`Folder`] removes it; a parent
//! that is killed can't, so the next one removes what is nobody's. A folder is somebody's as long as its `owner` file is
//! locked: a lock ends with its process, however that ends, and a process number would come again.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// How the folders are called.
const PREFIX: &str = "lynx-";
/// The file whose lock says that the folder is in use.
const OWNER: &str = "owner";

/// A folder that goes with its owner.
#[derive(Debug)]
pub(super) struct Folder {
    folder: tempfile::TempDir,
    /// Held until the folder is gone.
    _owner: File,
}

impl Folder {
    /// Makes one where this machine has memory for files, and removes those that nobody owns any more.
    pub(super) fn new() -> Result<Self> {
        Self::within(&memory_backed())
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn within(parent: &Path) -> Result<Self> {
        sweep(parent);
        // The file gets its name when it is locked already, so that nobody sees the folder without an owner.
        let owner = tempfile::NamedTempFile::new_in(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let made = owner.and_then(|owner| {
            owner.as_file().lock()?;
            let folder = folder?;
            let _owner = owner.persist(folder.path().join(OWNER))?;
            Ok(Self { folder, _owner })
        });
        made.with_context(|| format!("making a folder in {}", parent.display()))
    }
}

/// Removes folders whose owner is gone. What can't be removed is another user's, or is being removed: neither is ours to
/// report.
fn sweep(parent: &Path) {
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let folder = entry.path();
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let owner = File::open(folder.join(OWNER)).ok().filter(|_| named);
        if owner.is_some_and(|owner| owner.try_lock().is_ok()) {
            std::fs::remove_dir_all(&folder).ok();
        }
    }
}

/// Where a file lives in memory.
fn memory_backed() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_owner_left_goes_with_the_next_start_and_nothing_else_does() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Folder::within(parent.path()).unwrap();
        let killed = Folder::within(parent.path()).unwrap();
        std::fs::write(killed.path().join("kv-1"), "pool").unwrap();
        let left = killed.folder.keep();
        drop(killed._owner);
        let foreign = parent.path().join("lynx-of-another-kind");
        std::fs::create_dir(&foreign).unwrap();

        let next = Folder::within(parent.path()).unwrap();

        assert!(!left.exists());
        assert!(alive.path().is_dir() && next.path().is_dir() && foreign.is_dir());
        let gone = alive.path().to_owned();
        drop(alive);
        assert!(!gone.exists());
    }
}
