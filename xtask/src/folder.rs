//! A folder whose files all come from one generator.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// What a folder of the repository should hold: these files, and no others but where it is shared.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Where it is, from the repository's root.
    pub(crate) path: &'static str,
    /// Whether files of other origins lie there, too.
    pub(crate) is_shared: bool,
    /// Names and contents.
    pub(crate) files: Vec<(String, String)>,
}

impl Folder {
    /// Makes the folder what it should be: writes every file and removes those that nothing makes any more.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let folder = root.join(self.path);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        for name in self.surplus(root)? {
            let path = folder.join(name);
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        for (name, text) in &self.files {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// One sentence for every file that is not what it should be.
    pub(crate) fn differences(&self, root: &Path) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (name, text) in &self.files {
            let path = root.join(self.path).join(name);
            match fs::read_to_string(&path) {
                Ok(committed) if committed == *text => {}
                Ok(_) => found.push(format!("{}/{name} differs", self.path)),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    found.push(format!("{}/{name} is missing", self.path));
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("reading {}", path.display()));
                }
            }
        }
        let surplus = self.surplus(root)?.into_iter();
        found.extend(surplus.map(|name| format!("{}/{name}: nothing makes it", self.path)));
        Ok(found)
    }

    /// Names in the folder that are not among its files; none where there is no folder.
    fn surplus(&self, root: &Path) -> Result<BTreeSet<String>> {
        let folder = root.join(self.path);
        let context = || format!("listing {}", folder.display());
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error).with_context(context),
        };
        let mut names = BTreeSet::new();
        if self.is_shared {
            return Ok(names);
        }
        for entry in entries {
            let entry = entry.with_context(context)?;
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
        for (name, _) in &self.files {
            names.remove(name);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> Folder {
        let files = files.iter();
        Folder {
            path: "made/here",
            is_shared: false,
            files: files.map(|(n, t)| ((*n).into(), (*t).into())).collect(),
        }
    }

    #[test]
    fn what_was_written_has_no_differences() {
        let root = tempfile::tempdir().unwrap();
        let made = folder(&[("a.json", "1"), ("b.json", "2")]);
        made.write(root.path()).unwrap();
        assert!(made.differences(root.path()).unwrap().is_empty());
    }

    #[test]
    fn in_a_shared_folder_other_files_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        folder(&[("own", "1")]).write(root.path()).unwrap();
        let mut made = folder(&[("made", "2")]);
        made.is_shared = true;
        made.write(root.path()).unwrap();
        assert!(made.differences(root.path()).unwrap().is_empty());
        let own = root.path().join("made/here/own");
        assert_eq!(fs::read_to_string(own).unwrap(), "1");
    }

    #[test]
    fn each_kind_of_difference_is_named_and_writing_mends_it() {
        let root = tempfile::tempdir().unwrap();
        folder(&[("changed", "1"), ("old", "2")])
            .write(root.path())
            .unwrap();
        let made = folder(&[("changed", "one"), ("new", "3")]);
        assert_eq!(
            made.differences(root.path()).unwrap(),
            [
                "made/here/changed differs",
                "made/here/new is missing",
                "made/here/old: nothing makes it",
            ]
        );
        made.write(root.path()).unwrap();
        assert!(made.differences(root.path()).unwrap().is_empty());
    }
}
