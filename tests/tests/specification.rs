//! The specification names the tests that keep its promises: each name must be a test's.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_specification_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let specification = fs::read_to_string(root.join("docs/specification.md")).unwrap();
    let named = named_tests(&specification);
    assert!(!named.is_empty());

    let mut sources = String::new();
    collect(root, &mut sources);
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn every_test_that_keeps_a_pain_away_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/operators-pains.md")).unwrap();
    let named = named_tests(&page);
    assert!(named.len() > 20, "{named:?}");
    let mut sources = String::new();
    collect(root, &mut sources);
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn every_test_that_the_runbooks_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("docs/operations.md")).unwrap();
    let mut sources = String::new();
    collect(root, &mut sources);
    let named = named_tests(&page);
    assert!(named.len() > 5, "{named:?}");
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

/// The second halves of all `crate: name` in backticks.
fn named_tests(specification: &str) -> Vec<&str> {
    let quoted = specification.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| text.starts_with("lynx"))
        .filter_map(|text| text.split_once(": "))
        .map(|(_, name)| name)
        .collect()
}

/// Appends every Rust file below a folder, but for what a build makes.
fn collect(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != "target" {
                collect(&path, sources);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn names_are_found_in_backticks_behind_a_crate() {
    let text = "| a | `lynx-policy: it_is_so` and `lynx bench ttft`; `lynx: other` | `x: y` |";
    assert_eq!(named_tests(text), ["it_is_so", "other"]);
}
