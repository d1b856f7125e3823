//! libibverbs and its drivers, for an agent with RDMA.
//!
//! The agent loads the library by its name when its links want a card, and the library loads a driver for each card, so no
//! program's loader tells of either. Both come from this machine, as the C library does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::layer::Tree;
use super::program::libraries;

/// What the agent asks the loader for.
const LIBRARY: &str = "libibverbs.so.1";
/// Beside the library, where it looks for drivers.
const DRIVERS: &str = "libibverbs";
/// Files that name a driver each.
const NAMES: &str = "/etc/libibverbs.d";
const ADVICE: &str = "an agent with RDMA needs libibverbs and its drivers: on Debian and Ubuntu, apt-get install libibverbs1 ibverbs-providers";

/// What the agent's image needs beside the agent's own libraries: files by their place in the image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs(BTreeMap<String, PathBuf>);

impl Verbs {
    /// What this machine has, beside the C library of a program that has these libraries.
    ///
    /// # Errors
    /// It isn't installed: with what to do.
    pub(super) fn here(of_program: &BTreeSet<PathBuf>) -> Result<Self> {
        let c = of_program.iter().find(|path| path.ends_with("libc.so.6"));
        let c = c.context("the agent has no C library")?.canonicalize()?;
        let folder = c.parent().context("the C library is in a folder")?;
        Self::within(folder, Path::new(NAMES), of_program, libraries)
    }

    /// The library and the drivers of a folder, the files of another one that name the drivers, and what the code `needs`; but for what
    /// the program has.
    fn within(
        folder: &Path,
        names: &Path,
        of_program: &BTreeSet<PathBuf>,
        needs: impl Fn(&Path) -> Result<BTreeSet<PathBuf>>,
    ) -> Result<Self> {
        let library = folder.join(LIBRARY);
        let drivers = listed(&folder.join(DRIVERS))?;
        let names = listed(names)?;
        ensure!(
            library.is_file() && !drivers.is_empty() && !names.is_empty(),
            ADVICE
        );
        let has: BTreeSet<_> = of_program
            .iter()
            .filter_map(|path| path.file_name())
            .collect();
        let mut verbs = Self::default();
        for file in drivers.into_iter().chain([library]) {
            for needed in needs(&file)? {
                if needed.file_name().is_some_and(|name| !has.contains(name)) {
                    verbs.add(needed)?;
                }
            }
            verbs.add(file)?;
        }
        for name in names {
            verbs.add(name)?;
        }
        Ok(verbs)
    }

    /// Adds a file where this machine has it, by one name of its folder: `/lib` is often another one of `/usr/lib`.
    fn add(&mut self, file: PathBuf) -> Result<()> {
        let (folder, name) = (file.parent(), file.file_name());
        let (folder, name) = folder.zip(name).context("a file is in a folder")?;
        let place = folder.canonicalize()?.join(name);
        let place = place.to_string_lossy().trim_start_matches('/').to_owned();
        self.0.insert(place, file);
        Ok(())
    }

    /// What of it is code.
    pub(super) fn libraries(&self) -> impl Iterator<Item = &PathBuf> {
        self.0
            .iter()
            .filter(|(place, _)| is_code(place))
            .map(|(_, file)| file)
    }

    /// As files of an image.
    pub(super) fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        for (place, file) in &self.0 {
            tree.copy(place, if is_code(place) { 0o755 } else { 0o644 }, file);
        }
        tree
    }
}

fn is_code(place: &str) -> bool {
    place.contains(".so")
}

/// The files of a folder; none where there is no folder.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_its_drivers_and_what_they_need_go_in_and_nothing_twice() {
        let machine = tempfile::tempdir().unwrap();
        let root = machine.path().canonicalize().unwrap();
        let write = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let library = write("usr/lib/libibverbs.so.1");
        let driver = write("usr/lib/libibverbs/libcard-rdmav34.so");
        let name = write("etc/libibverbs.d/card.driver");
        let (c, nl) = (write("usr/lib/libc.so.6"), write("usr/lib/libnl-3.so.200"));
        std::os::unix::fs::symlink(root.join("usr/lib"), root.join("lib")).unwrap();
        let by_lib = |name: &str| root.join("lib").join(name);
        let needs = |_: &Path| {
            let names = ["libc.so.6", "libnl-3.so.200", "libibverbs.so.1"];
            Ok(names.map(by_lib).into())
        };
        let folder = root.join("usr/lib");
        let names = root.join("etc/libibverbs.d");
        let verbs = Verbs::within(&folder, &names, &[c].into(), needs).unwrap();
        let places: Vec<_> = verbs.0.keys().map(|place| format!("/{place}")).collect();
        let expected = [name, library, driver, nl];
        assert_eq!(
            places,
            expected.map(|path| path.to_str().unwrap().to_owned())
        );
        assert_eq!(verbs.libraries().count(), 3);
    }

    #[test]
    fn a_machine_without_drivers_is_told_what_to_install() {
        let empty = tempfile::tempdir().unwrap();
        let found = Verbs::within(empty.path(), empty.path(), &BTreeSet::new(), libraries);
        assert_eq!(found.unwrap_err().to_string(), ADVICE);
    }
}
