//! The committed corpora, on the pinned compiler: what fuzzing found once stays answered.
#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lynx_parsers::{ALL, seeds};

/// All corpora together.
const MOST_BYTES: u64 = 1 << 20;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

fn names(folder: &str) -> BTreeSet<String> {
    files(&fuzz().join(folder))
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// Says which input a parser panics at.
struct At<'a>(&'a Path);

impl Drop for At<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("at {}", self.0.display());
        }
    }
}

#[test]
fn every_parser_answers_every_file_of_its_corpus() {
    for parser in ALL {
        let corpus = files(&fuzz().join("corpus").join(parser.name));
        assert!(!corpus.is_empty(), "{} has no corpus", parser.name);
        for file in corpus {
            let at = At(&file);
            (parser.read)(&fs::read(&file).unwrap());
            drop(at);
        }
    }
}

/// A few bytes of `input` changed, moved, doubled or left out, as the seed says.
fn changed(input: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % n.max(1)
    };
    let mut bytes = input.to_vec();
    for _ in 0..=below(4) {
        let at = below(bytes.len());
        match below(5) {
            0 => bytes.truncate(at),
            1 => {
                let copied = bytes[at..].to_vec();
                bytes.extend(copied);
            }
            2 => bytes.insert(at, u8::try_from(below(256)).unwrap()),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ if at < bytes.len() => bytes[at] ^= 1 << below(8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn every_parser_answers_what_its_corpus_becomes_when_bytes_change() {
    for parser in ALL {
        for file in files(&fuzz().join("corpus").join(parser.name)) {
            let at = At(&file);
            let input = fs::read(&file).unwrap();
            for seed in 0..50 {
                (parser.read)(&changed(&input, seed));
            }
            drop(at);
        }
    }
}

#[test]
fn the_machines_withstand_any_peer() {
    for name in ["receiver", "sender"] {
        for seed in 1..2000 {
            lynx_parsers::read(name, &seeds::noise(800, seed));
        }
    }
}

#[test]
fn every_parser_has_a_fuzz_target_and_a_corpus_and_nothing_else_has() {
    let parsers: BTreeSet<String> = ALL.iter().map(|parser| parser.name.to_owned()).collect();
    assert_eq!(names("fuzz_targets"), parsers);
    assert_eq!(names("corpus"), parsers);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in parsers {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}

/// Texts are examples, which may change without their seeds.
#[test]
fn the_seeds_are_there_and_in_the_formats_of_today() {
    for parser in ALL {
        for (number, seed) in seeds::of(parser.name).iter().enumerate() {
            let file = fuzz()
                .join("corpus")
                .join(parser.name)
                .join(format!("seed-{number}"));
            let is_text = str::from_utf8(seed).is_ok();
            assert!(
                fs::read(&file).is_ok_and(|committed| is_text || committed == *seed),
                "{}: run cargo run -p lynx-parsers --example seeds",
                file.display()
            );
        }
    }
}

#[test]
fn the_corpora_stay_small() {
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let bytes: u64 = ALL
        .iter()
        .flat_map(|parser| files(&fuzz().join("corpus").join(parser.name)))
        .map(|path| size(&path))
        .sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
