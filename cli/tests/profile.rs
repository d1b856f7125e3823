//! The committed profile is what the command makes.
#![cfg(test)]

mod support;

use lynx_kernels::Profile;
use support::{Folder, lynx, text};

const COMMITTED: &str = include_str!("../../profiles/smollm2-135m-instruct.json");

#[test]
fn calibrate_makes_the_committed_profile_again() {
    let folder = Folder::new();
    let made = folder.path("profile.json");
    let output = lynx().args(["calibrate", "--out", &made]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let made = std::fs::read_to_string(made).unwrap();
    assert!(
        made == COMMITTED,
        "run `make profile PROFILE=profiles/smollm2-135m-instruct.json`"
    );
}

#[test]
fn a_text_that_is_too_short_to_calibrate_with_is_named() {
    let folder = Folder::new();
    let short = folder.write("short.txt", "too short");
    let output = lynx()
        .args([
            "calibrate",
            "--out",
            &folder.path("p.json"),
            "--text",
            &short,
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("short.txt"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_committed_profile_ranks_every_head() {
    let profile = Profile::from_json(COMMITTED).unwrap();
    let shape = profile.shape();
    assert_eq!((shape.layers, shape.kv_heads, shape.head_dim), (30, 3, 64));
}
