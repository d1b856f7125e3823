//! Runs a test in a process of its own that finds another library where the driver's would be.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lynx_cuda::source_digest;

const FOLDER: &str = "LYNX_TEST_KERNELS";

/// Runs the ignored test `name` with the fake driver.
pub(crate) fn run(name: &str) {
    let library = built("liblynx_fake_cuda.so");
    run_with(name, &library);
}

/// Runs it with a library that is no driver at all.
pub(crate) fn run_with_another_library(name: &str) {
    let libraries = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ];
    let library = libraries.iter().map(Path::new).find(|it| it.exists());
    run_with(name, library.unwrap());
}

/// Where the child has its kernels.
pub(crate) fn kernels() -> PathBuf {
    env::var_os(FOLDER)
        .expect("this test is run by another one, which prepares a library and kernels for it")
        .into()
}

fn run_with(name: &str, library: &Path) {
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
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed: its output is above");
}

/// A library that Cargo has built beside this test.
fn built(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let found = program.ancestors().map(|folder| folder.join(name));
    found.into_iter().find(|path| path.is_file()).unwrap()
}
