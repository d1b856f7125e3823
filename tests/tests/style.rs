//! The style rules, held against every file of the repository.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use lynx_tests::style;

/// No file is larger: what is, belongs in a release or is made by a command.
const MAX_FILE_BYTES: usize = 1 << 20;

/// What git ignores or owns, and what a build or a fuzzing run makes. In a further worktree `.git` is a file.
const NOT_OURS: [&str; 4] = [".git", "target", "out", "artifacts"];

#[test]
fn every_file_keeps_to_the_style() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    collect(root, &mut files);
    assert!(files.iter().any(|path| path.ends_with("units/src/lib.rs")));

    let mut objections = Vec::new();
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let path = file.strip_prefix(root).unwrap().display().to_string();
        if bytes.len() > MAX_FILE_BYTES {
            objections.push(format!(
                "{path}: {} bytes, more than {MAX_FILE_BYTES}",
                bytes.len()
            ));
        }
        if let Ok(text) = str::from_utf8(&bytes) {
            objections.extend(style::objections(&path, text));
        }
    }
    assert!(objections.is_empty(), "\n{}", objections.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let name = entry.file_name();
        if NOT_OURS.iter().any(|theirs| name == *theirs) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}
