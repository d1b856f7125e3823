//! The committed vectors, generated anew and through the decoder alone.

use std::fs;
use std::path::Path;

use lynx_kernels::vectors::{self, Vector, bytes_of};
use lynx_kernels::{Blocks, Codec, Simd, checksum};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn committed() -> Vec<(String, Vector)> {
    let entries = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|e| e == "json"));
    files
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (
                path.display().to_string(),
                Vector::from_json(&text).unwrap(),
            )
        })
        .collect()
}

#[test]
fn the_committed_vectors_are_what_the_generator_makes() {
    let generated = vectors::generate();
    for (name, text) in &generated {
        let committed = fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(
            committed == *text,
            "{name} differs: run `cargo xtask vectors`, and say why it is right"
        );
    }
    assert_eq!(
        committed().len(),
        generated.len(),
        "a file that nothing generates"
    );
    let bytes: usize = generated.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes < 200 << 10, "{bytes} bytes");
}

#[test]
fn the_decoder_gives_what_the_committed_vectors_say_at_every_level() {
    for (name, vector) in committed() {
        let (plan, order) = (vector.plan().unwrap(), vector.order().unwrap());
        let unit = vector.segments().unwrap();
        let sums = (0..plan.segments()).map(|i| checksum(unit.segment(i).unwrap()));
        assert!(sums.eq(vector.checksums().unwrap()), "{name}");
        for codec in Simd::ALL.into_iter().filter_map(Codec::with_simd) {
            let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            for (steps, expected) in (1..).zip(vector.merged().unwrap()) {
                codec
                    .merge(&plan, &order, &unit, steps, &mut blocks)
                    .unwrap();
                assert_eq!(
                    checksum(&bytes_of(&plan, &blocks)),
                    expected,
                    "{name} {steps} {codec:?}"
                );
            }
            codec
                .decode_tail(&plan, &order, &unit, &mut blocks)
                .unwrap();
            assert_eq!(
                bytes_of(&plan, &blocks),
                vector.values().unwrap(),
                "{name} {codec:?}"
            );
        }
    }
}
