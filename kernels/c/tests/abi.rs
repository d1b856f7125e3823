//! The library as C and Python use it.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "helpers of tests"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that Cargo has built beside this test.
fn library() -> PathBuf {
    let program = env::current_exe().unwrap();
    let mut places = program.ancestors().map(|it| it.join("liblynx_c.so"));
    places.find(|it| it.is_file()).unwrap()
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeeded(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said
}

#[test]
fn c_splits_merges_and_restores() {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("round_trip");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"])
        .arg("-I")
        .arg(folder().join("include"))
        .arg(folder().join("tests/round_trip.c"))
        .arg(library())
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    succeeded(&compiled);
    let path = library().parent().unwrap().to_owned();
    let run = Command::new(program).env("LD_LIBRARY_PATH", path).output();
    assert_eq!(succeeded(&run.unwrap()), "all well\n");
}

#[test]
fn python_splits_what_it_then_restores() {
    let run = Command::new("python3")
        .arg(folder().join("tests/round_trip.py"))
        .arg(library())
        .output();
    assert_eq!(succeeded(&run.unwrap()), "all well\n");
}
