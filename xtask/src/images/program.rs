//! A program for an image: built, stripped, and with the libraries that it needs.
//!
//! Programs are linked against the C library of the machine that builds them, and the image brings that library, taken
//! from where the program's own loader finds it. A static program would be one file instead of five, but it would need a
//! build of its own, since every crate's code differs from what the tests have built; and glibc, linked statically, still
//! looks for files of its exact version when it resolves names beyond `files` and `dns`. musl's allocator costs the
//! engine a good part of its speed.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
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

/// Packages that are built together, whichever of their programs are wanted: cargo gives a crate the features that any of
/// them asks for, so a program would else depend on which others were built with it.
pub(crate) const PACKAGES: [&str; 4] = ["lynx", "lynx-agent", "lynx-operator", "lynx-pause"];

/// Builds programs of [`PACKAGES`] with these features of theirs, and puts their stripped forms into `folder`, in the order of their names.
///
/// # Errors
/// Cargo or strip fail, or a release program contains a path of this machine.
pub(crate) fn build(
    root: &Path,
    profile: Profile,
    names: &[&str],
    features: &[&str],
    folder: &Path,
) -> Result<Vec<Program>> {
    let release = match profile {
        Profile::Release => Some(Release::here(root)?),
        Profile::Dev => None,
    };
    let built = compile(root, names, features, release.as_ref())?;
    let mut programs = Vec::new();
    for name in names {
        let executable = built.iter().find(|path| path.ends_with(name));
        let executable = executable.with_context(|| format!("cargo built no program {name}"))?;
        let file = folder.join(name);
        strip(executable, &file)?;
        if let Some(release) = &release {
            release.is_not_in(&file)?;
        }
        let libraries = libraries(&file)?;
        programs.push(Program { file, libraries });
    }
    Ok(programs)
}

/// How a release is built, so that it tells nothing of the machine.
#[derive(Debug)]
struct Release {
    /// A folder of its own: other flags make other code, and in the usual one both would be built anew at each change.
    target: PathBuf,
    /// Folders whose names the compiler would write into a program, and what it is to write instead.
    places: Vec<(PathBuf, &'static str)>,
}

impl Release {
    fn here(root: &Path) -> Result<Self> {
        let metadata = MetadataCommand::new().current_dir(root).exec()?;
        let packages = metadata.packages.iter();
        let elsewhere = packages.filter(|package| package.source.is_some());
        let sources: BTreeSet<PathBuf> = elsewhere
            .filter_map(|package| Some(package.manifest_path.parent()?.parent()?.into()))
            .collect();
        let sources = sources.into_iter().map(|folder| (folder, "/crates"));
        let target = PathBuf::from(metadata.target_directory.join("images"));
        // The last one that fits counts, and generated code often lies below the root.
        let own = [(root.to_owned(), "/lynx"), (target.clone(), "/generated")];
        Ok(Self {
            target,
            places: sources.chain(own).collect(),
        })
    }

    fn flags(&self) -> String {
        let places = self.places.iter();
        let flags: Vec<_> = places
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
            .collect();
        flags.join("\u{1f}")
    }

    fn is_not_in(&self, program: &Path) -> Result<()> {
        let bytes = fs::read(program)?;
        for (place, _) in &self.places {
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
}

/// Runs cargo, and returns the programs that it says it has made.
fn compile(
    root: &Path,
    names: &[&str],
    features: &[&str],
    release: Option<&Release>,
) -> Result<Vec<PathBuf>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).stdout(Stdio::piped());
    cargo.args([
        "build",
        "--locked",
        "--message-format=json-render-diagnostics",
    ]);
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    cargo.args(names.iter().flat_map(|name| ["--bin", name]));
    cargo.args(features.iter().flat_map(|feature| ["--features", feature]));
    if let Some(release) = release {
        cargo
            .arg("--release")
            .arg("--target-dir")
            .arg(&release.target);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", release.flags());
    }
    let mut child = cargo.spawn().context("starting cargo")?;
    let output = child.stdout.take().context("cargo's output was piped")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
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

/// The shared libraries of a program or of a library, as the loader finds them.
///
/// # Errors
/// One of them isn't there.
pub(crate) fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
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
