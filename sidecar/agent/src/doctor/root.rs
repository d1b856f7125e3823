//! The files of a machine, or of a test that plays one.

use std::path::{Path, PathBuf};

/// Where the kernel's files are.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// This machine's.
    pub fn real() -> Self {
        Self::at("/")
    }

    /// Those under `path`, as if it were `/`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where `path`, which begins with `/`, is.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text without the space around it; `None` where it can't be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A file that is a number, or several: the one at `index`.
    pub(super) fn number(&self, path: &str, index: usize) -> Option<u64> {
        self.text(path)?.split_whitespace().nth(index)?.parse().ok()
    }

    /// The names in a directory, in order; none where it can't be read.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    /// Whether something is there.
    pub(super) fn has(&self, path: &str) -> bool {
        Path::new(&self.path(path)).exists()
    }
}
