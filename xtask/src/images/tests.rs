//! Archives read back as an importer reads them.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::archive::Image;
use super::layer::{Packing, Tree};
use super::*;

/// Files of an archive by name, each with its mode, owner and time.
type Files = BTreeMap<String, (u32, u64, u64, Vec<u8>)>;

fn unpacked(archive: &[u8]) -> Files {
    let mut files = Files::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        let facts = (
            header.mode().unwrap(),
            header.uid().unwrap(),
            header.mtime().unwrap(),
        );
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(name, (facts.0, facts.1, facts.2, bytes));
    }
    files
}

fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter()
        .fold("sha256:".into(), |text, byte| format!("{text}{byte:02x}"))
}

/// What a descriptor describes, after a look at its size and digest.
fn described<'a>(files: &'a Files, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().unwrap();
    let (_, _, _, bytes) = &files[&format!("blobs/{}", digest.replace(':', "/"))];
    assert_eq!(sha256(bytes), digest);
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

fn json_of(files: &Files, descriptor: &Value) -> Value {
    serde_json::from_slice(described(files, descriptor)).unwrap()
}

/// An image of a made-up program in `folder`, and the digest that it is said to have.
fn image_of(folder: &Path, epoch: u64) -> (Vec<u8>, String) {
    let file = folder.join("program");
    fs::write(&file, "what runs").unwrap();
    let library = folder.join("libneeded.so.1");
    fs::write(&library, "what it needs").unwrap();
    let mut system = system(&BTreeSet::new());
    system.copy("lib/libneeded.so.1", 0o755, library);
    let mut own = Tree::default();
    own.copy("usr/bin/program", 0o755, file);
    let image = Image {
        repository: "example.org/program".into(),
        tag: "1.2.3".into(),
        entrypoint: vec!["/usr/bin/program".into()],
        labels: BTreeMap::from([("org.opencontainers.image.title".into(), "Program".into())]),
        layers: vec![
            system.pack(Packing::Gzip, epoch).unwrap(),
            own.pack(Packing::Plain, epoch).unwrap(),
        ],
    };
    let mut bytes = Vec::new();
    let written = image.write(&mut bytes, epoch).unwrap();
    (bytes, written.digest)
}

#[test]
fn every_digest_of_an_archive_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, digest) = image_of(folder.path(), 0);
    let files = unpacked(&archive);
    let layout: Value = serde_json::from_slice(&files["oci-layout"].3).unwrap();
    assert_eq!(layout["imageLayoutVersion"], "1.0.0");

    let index: Value = serde_json::from_slice(&files["index.json"].3).unwrap();
    let [entry] = &index["manifests"].as_array().unwrap()[..] else {
        panic!("one image: {index}");
    };
    assert_eq!(entry["digest"], digest);
    assert_eq!(
        entry["annotations"]["io.containerd.image.name"],
        "example.org/program:1.2.3"
    );
    let manifest = json_of(&files, entry);
    let config = json_of(&files, &manifest["config"]);
    let diff_ids = config["rootfs"]["diff_ids"].as_array().unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!((layers.len(), diff_ids.len()), (2, 2));
    for (layer, diff_id) in layers.iter().zip(diff_ids) {
        assert_eq!(sha256(&layer_of(&files, layer)), *diff_id);
    }
    // Two documents beside the blobs: config, manifest and two layers.
    assert_eq!(files.len(), 2 + 4);
}

fn layer_of(files: &Files, descriptor: &Value) -> Vec<u8> {
    let packed = described(files, descriptor);
    if descriptor["mediaType"].as_str().unwrap().ends_with("+gzip") {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        bytes
    } else {
        packed.to_vec()
    }
}

#[test]
fn an_image_holds_a_program_its_library_and_a_user_who_is_not_root() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, _) = image_of(folder.path(), 7);
    let files = unpacked(&archive);
    let index: Value = serde_json::from_slice(&files["index.json"].3).unwrap();
    let manifest = json_of(&files, &index["manifests"][0]);
    let config = json_of(&files, &manifest["config"]);
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(
        config["config"]["Entrypoint"],
        serde_json::json!(["/usr/bin/program"])
    );
    assert_eq!(config["created"], "1970-01-01T00:00:07Z");

    let mut inside = Files::new();
    for layer in manifest["layers"].as_array().unwrap() {
        inside.extend(unpacked(&layer_of(&files, layer)));
    }
    assert_eq!(
        inside["usr/bin/program"],
        (0o755, 0, 7, b"what runs".to_vec())
    );
    assert_eq!(inside["lib/libneeded.so.1"].3, b"what it needs");
    assert_eq!(inside["tmp/"].0, 0o1777);
    let passwd = String::from_utf8(inside["etc/passwd"].3.clone()).unwrap();
    assert!(passwd.contains("lynx:x:65532:65532:"));
    let names: Vec<&str> = inside.keys().map(String::as_str).collect();
    let expected = [
        "etc/",
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "lib/",
        "lib/libneeded.so.1",
        "tmp/",
        "usr/",
        "usr/bin/",
        "usr/bin/program",
        "usr/share/",
        "usr/share/doc/",
        "usr/share/doc/lynx/",
        "usr/share/doc/lynx/LICENSE",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_same_programs_give_the_same_archive_wherever_they_lie() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, _) = image_of(one.path(), 0);
    let (second, _) = image_of(other.path(), 0);
    assert_eq!(sha256(&first), sha256(&second));
    for folder in [one, other] {
        let name = folder.path().to_str().unwrap().as_bytes().to_vec();
        assert!(!first.windows(name.len()).any(|window| window == name));
    }
}

#[test]
fn another_time_gives_another_digest() {
    let folder = tempfile::tempdir().unwrap();
    assert_ne!(image_of(folder.path(), 0).1, image_of(folder.path(), 1).1);
}

#[test]
fn weights_are_an_image_of_one_uncompressed_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("small.gguf");
    fs::write(&model, "GGUF").unwrap();
    let layer = weights(&model, 0).unwrap();
    assert_eq!(layer.diff_id, layer.blob.digest);
    let mut bytes = Vec::new();
    { layer.blob.file }.read_to_end(&mut bytes).unwrap();
    let files = unpacked(&bytes);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["small.gguf"]);
    assert_eq!(files["small.gguf"].3, b"GGUF");
}

#[test]
fn sizes_are_rounded_up() {
    assert_eq!(tenths_of_mebibytes(0), "0.0");
    assert_eq!(tenths_of_mebibytes(1), "0.1");
    assert_eq!(tenths_of_mebibytes(3 << 20), "3.0");
}
