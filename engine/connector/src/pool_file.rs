//! The file that the KV pool lies in.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum PoolFileError {
    /// Not a plain name.
    #[error("{0:?} is no name for the KV pool's file: give one without a slash")]
    Name(String),
    /// The file system says no.
    #[error(
        "can't make the KV pool's file {}: {source}; is its folder there, and shared with the agent?",
        .path.display()
    )]
    Create {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// A new file, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PoolFile {
    path: PathBuf,
    file: File,
}

impl PoolFile {
    /// Makes an empty file of its own. One of the same name is removed and never reused: whoever still has that one mapped
    /// writes into what nobody reads.
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self, PoolFileError> {
        let is_plain = matches!(
            Path::new(name).components().collect::<Vec<_>>()[..],
            [Component::Normal(part)] if part == name
        );
        if !is_plain {
            return Err(PoolFileError::Name(name.to_owned()));
        }
        let path = folder.join(name);
        remove_stale(folder);
        let file = fresh(&path).map_err(|source| PoolFileError::Create {
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        // In a folder that is gone already, there is nothing left to remove.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Pools of engines that were killed: nobody else gives their memory back. A living engine holds its file's lock.
fn remove_stale(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_pool(&entry.file_name())) {
        let file = OpenOptions::new().read(true).write(true).open(entry.path());
        if file.is_ok_and(|file| file.try_lock().is_ok()) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

fn is_pool(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix("kv-"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

fn fresh(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    // Agent and engine may be two users of one group; nobody else is to read KV.
    file.set_permissions(Permissions::from_mode(0o660))?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_same_name_is_left_to_those_who_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kv");
        std::fs::write(&path, "old").unwrap();
        let old = File::open(&path).unwrap();
        let new = PoolFile::create(folder.path(), "kv").unwrap();
        assert_eq!(new.file().metadata().unwrap().len(), 0);
        assert_eq!(old.metadata().unwrap().len(), 3);
        drop(new);
        assert!(!path.exists());
    }

    #[test]
    fn pools_that_nobody_lives_in_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let others = ["kv-17", "kv-notes", "agent.yaml"];
        for name in others {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let alive = PoolFile::create(folder.path(), "kv-18").unwrap();
        let new = PoolFile::create(folder.path(), "kv-19").unwrap();
        let left = others.map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
        assert!(alive.path().exists() && new.path().exists());
    }

    #[test]
    fn only_plain_names_in_folders_that_are_there_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "a/b", "/kv", "kv/"] {
            let error = PoolFile::create(folder.path(), name).unwrap_err();
            assert!(error.to_string().contains("without a slash"), "{name}");
        }
        let error = PoolFile::create(&folder.path().join("none"), "kv").unwrap_err();
        assert!(error.to_string().contains("is its folder there"), "{error}");
    }
}
