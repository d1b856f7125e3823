//! Runs a test in a process of its own that finds another library where the driver's would be.

use std::env;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lynx_cuda::source_digest;

const FOLDER: &str = "LYNX_TEST_KERNELS";
/// What the fake driver's order of streams comes from.
const SEED: &str = "LYNX_FAKE_CUDA_SEED";

/// Runs the ignored test `name` with the fake driver.
pub(crate) fn run(name: &str) {
    run_with(name, &built("liblynx_fake_cuda.so"), 0);
}

/// The same with several orders in which streams do what they were asked for; with the one that the environment names, where it does.
pub(crate) fn run_in_orders(name: &str, seeds: Range<u64>) {
    let library = built("liblynx_fake_cuda.so");
    let named = env::var_os(SEED).and_then(|text| text.to_str()?.parse().ok());
    for seed in named.map_or(seeds, |seed| seed..seed + 1) {
        run_with(name, &library, seed);
    }
}

/// Runs it with a library that is no driver at all.
pub(crate) fn run_with_another_library(name: &str) {
    let libraries = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ];
    let library = libraries.iter().map(Path::new).find(|it| it.exists());
    run_with(name, library.unwrap(), 0);
}

/// Where the child has its kernels.
pub(crate) fn kernels() -> PathBuf {
    env::var_os(FOLDER)
        .expect("this test is run by another one, which prepares a library and kernels for it")
        .into()
}

fn run_with(name: &str, library: &Path, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    symlink(library, folder.path().join("libcuda.so")).unwrap();
    let kernels = folder.path().join("kernels");
    fs::create_dir(&kernels).unwrap();
    fs::write(kernels.join("SOURCE"), source_digest()).unwrap();
    for line in include_str!("../../../variants.txt").lines() {
        let build = line.split_whitespace().next().unwrap_or("#");
        if !build.starts_with('#') {
            let path = kernels.join(format!("{build}.sm_90.cubin"));
            fs::write(path, format!("fake:{build}")).unwrap();
        }
    }
    let status = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("LD_LIBRARY_PATH", folder.path())
        .env(FOLDER, &kernels)
        .env(SEED, seed.to_string())
        .status()
        .unwrap();
    assert!(
        status.success(),
        "{name} failed with {SEED}={seed}: its output is above"
    );
}

/// A library that Cargo has built beside this test.
fn built(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let found = program.ancestors().map(|folder| folder.join(name));
    found.into_iter().find(|path| path.is_file()).unwrap()
}
