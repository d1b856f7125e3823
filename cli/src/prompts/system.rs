//! Texts that most machines have: licences and the Python library, read where they are.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Kind, SOURCE_BYTES, Source, document};

/// Licences of 16 KiB and more, under `share/common-licenses`.
const LICENCES: [&str; 5] = ["GPL-3", "LGPL-2.1", "MPL-2.0", "GFDL-1.3", "GPL-2"];

/// Python's modules of a few tens of KiB with much commentary.
const MODULES: [&str; 5] = ["argparse", "difflib", "ipaddress", "statistics", "textwrap"];

pub(super) fn sources(usr: &Path, seed: u64, notes: &mut Vec<String>) -> Vec<Source> {
    let mut sources = Vec::new();
    let licences = usr.join("share/common-licenses");
    for licence in LICENCES {
        let question = "Summarise the text above for somebody who is not a lawyer: what it allows and what it asks for.";
        let name = format!("licence-{}", licence.to_lowercase());
        match read(&licences.join(licence)) {
            Ok(text) => sources.push(document(Kind::Prose, &name, &text, question, seed)),
            Err(note) => notes.push(note),
        }
    }
    let Some(library) = python_library(usr) else {
        notes.push(format!(
            "no Python library under {}: its prompts are left out",
            usr.display()
        ));
        return sources;
    };
    for module in MODULES {
        let question = "Explain what the Python code above is for, and walk through its most important function.";
        let name = format!("python-{module}");
        match read(&library.join(module).with_extension("py")) {
            Ok(text) => sources.push(document(Kind::Code, &name, &text, question, seed)),
            Err(note) => notes.push(note),
        }
    }
    sources
}

/// The newest `lib/python3.N` that holds modules.
fn python_library(usr: &Path) -> Option<PathBuf> {
    let homes = [usr.join("local/lib"), usr.join("lib")];
    let entries = homes.iter().filter_map(|home| fs::read_dir(home).ok());
    let versions = entries.flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        let version: u32 = name.to_str()?.strip_prefix("python3.")?.parse().ok()?;
        let path = entry.path();
        path.join("argparse.py")
            .is_file()
            .then_some((version, path))
    });
    versions.max().map(|(_, path)| path)
}

/// The whole file: UTF-8, and of a size that a context can come from.
fn read(path: &Path) -> Result<String, String> {
    let left_out = |why: String| format!("{}: {why}; its prompt is left out", path.display());
    let text = fs::read_to_string(path).map_err(|error| left_out(error.to_string()))?;
    if text.len() < SOURCE_BYTES / 4 {
        return Err(left_out(format!("only {} bytes", text.len())));
    }
    Ok(text)
}
