//! A program for an image: built, stripped, and with the libraries that it needs.
//!
//! Programs are linked against the C library of the machine that builds them, and the image brings that library, taken
//! from where the program's own loader finds it. A static program would be one file instead of five, but it would need a
//! build of its own, since every crate's code differs from what the tests have built; and glibc, linked statically, still
//! looks for files of its exact version when it resolves names beyond `files` and `dns`. musl's allocator costs the
//! engine a good part of its speed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Message, MetadataCommand};

/// How programs are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// For clusters: nothing in it tells of the machine that built it.
    Release,
    /// For the tests: what they have compiled already is used.
    Dev,
}

/// A program that was built.
#[derive(Debug)]
pub(crate) struct Program {
    /// Without symbols.
    pub(crate) file: PathBuf,
    /// Absolute paths of the shared libraries and of the loader.
    pub(crate) libraries: BTreeSet<PathBuf>,
}

/// Builds the programs of these packages and puts their stripped forms into `folder`, in the order of `packages`.
///
/// # Errors
/// Cargo or strip fail, or a release program contains a path of this machine.
pub(crate) fn build(
    root: &Path,
    profile: Profile,
    packages: &[(&str, &str)],
    folder: &Path,
) -> Result<Vec<Program>> {
    let secrets = match profile {
        Profile::Release => places(root)?,
        Profile::Dev => Vec::new(),
    };
    let built = compile(root, profile, packages, &secrets)?;
    let mut programs = Vec::new();
    for (_, program) in packages {
        let executable = built.iter().find(|path| path.ends_with(program));
        let executable = executable.with_context(|| format!("cargo built no program {program}"))?;
        let file = folder.join(program);
        strip(executable, &file)?;
        names_no_place(&file, &secrets)?;
        let libraries = libraries(&file)?;
        programs.push(Program { file, libraries });
    }
    Ok(programs)
}

/// Folders whose names the compiler would write into a program, and what it is to write instead.
fn places(root: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let metadata = MetadataCommand::new().current_dir(root).exec()?;
    let elsewhere = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some());
    let sources: BTreeSet<PathBuf> = elsewhere
        .filter_map(|package| Some(package.manifest_path.parent()?.parent()?.into()))
        .collect();
    let sources = sources.into_iter().map(|folder| (folder, "/crates"));
    Ok(sources.chain([(root.to_owned(), "/lynx")]).collect())
}

/// Runs cargo, and returns the programs that it says it has made.
fn compile(
    root: &Path,
    profile: Profile,
    packages: &[(&str, &str)],
    places: &[(PathBuf, &str)],
) -> Result<Vec<PathBuf>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).stdout(Stdio::piped());
    cargo.args([
        "build",
        "--locked",
        "--message-format=json-render-diagnostics",
    ]);
    for (package, program) in packages {
        cargo.args(["--package", package, "--bin", program]);
    }
    if profile == Profile::Release {
        let remap = places
            .iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
        // A folder of its own: other flags make other code, and the usual folder would be built anew at each change.
        cargo.args(["--release", "--target-dir", "target/images"]);
        cargo.env(
            "CARGO_ENCODED_RUSTFLAGS",
            remap.collect::<Vec<_>>().join("\u{1f}"),
        );
    }
    let mut child = cargo.spawn().context("starting cargo")?;
    let output = child.stdout.take().context("cargo's output was piped")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(std::io::BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message? {
            programs.extend(artifact.executable.map(PathBuf::from));
        }
    }
    ensure!(
        child.wait()?.success(),
        "cargo build failed: it says why above"
    );
    Ok(programs)
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip")
        .arg("--strip-all")
        .arg("-o")
        .args([to, from])
        .status();
    let status = status.context("starting strip, which comes with the C compiler (binutils)")?;
    ensure!(status.success(), "strip failed on {}", from.display());
    Ok(())
}

fn names_no_place(program: &Path, places: &[(PathBuf, &str)]) -> Result<()> {
    let bytes = fs::read(program)?;
    for (place, _) in places {
        let name = place.as_os_str().as_encoded_bytes();
        if bytes.windows(name.len()).any(|window| window == name) {
            bail!(
                "{} contains the path {} of this machine",
                program.display(),
                place.display()
            );
        }
    }
    Ok(())
}

/// The shared libraries of a program, as its loader finds them.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.context("starting ldd, which comes with the C library")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success() && !text.contains("not found"),
        "ldd does not find all libraries of {}:\n{text}",
        program.display()
    );
    Ok(paths(&text))
}

/// The absolute paths in what ldd says: `libc.so.6 => /lib/libc.so.6 (0x..)`, or `/lib/ld-linux.so.2 (0x..)`.
fn paths(text: &str) -> BTreeSet<PathBuf> {
    let words = text.split_whitespace();
    words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_library_is_not_a_file() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f20)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(paths(text), expected.map(PathBuf::from).into());
    }
}
