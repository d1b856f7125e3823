//! Generators of the committed files, and of container images.
//!
//! What a reader or another implementation needs is committed, even where code makes it: `cargo xtask vectors`, `crds`, `reference` and
//! `monitoring` write it, `cargo xtask check` makes it in memory and fails on a difference. Refuses to be a build
//! step: nothing that is built depends on it.

mod crds;
mod folder;
mod images;
mod monitoring;
mod reference;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::folder::Folder;

const USAGE: &str = "usage: cargo xtask vectors      write the codec's test vectors
       cargo xtask crds         write the custom resource definition
       cargo xtask monitoring   write docs/metrics.md, the alerts and the dashboard
       cargo xtask reference    write docs/reference.md, every field of a LynxDeployment
       cargo xtask check        fail where a committed generated file is not what its generator makes
       cargo xtask images       make container images of Lynx (--help says how)";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is closed there is nobody to tell; the exit code still says it.
            drop(writeln!(io::stderr(), "{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace's root")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == "images"
    {
        return images::run(root, rest);
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["vectors"] => vectors().write(root),
        ["crds"] => crds::folder().write(root),
        ["reference"] => reference::folder().write(root),
        ["monitoring"] => {
            let folders = monitoring::folders();
            folders.iter().try_for_each(|folder| folder.write(root))
        }
        ["check"] => {
            let mut folders = vec![vectors(), crds::folder(), reference::folder()];
            folders.extend(monitoring::folders());
            check(root, &folders)
        }
        _ => bail!("{USAGE}"),
    }
}

/// The codec's test vectors, by which another implementation can tell whether it is one.
fn vectors() -> Folder {
    Folder {
        path: "kernels/vectors",
        is_shared: false,
        files: lynx_kernels::vectors::generate(),
    }
}

fn check(root: &Path, folders: &[Folder]) -> Result<()> {
    let mut differences = Vec::new();
    for folder in folders {
        differences.extend(folder.differences(root)?);
    }
    if differences.is_empty() {
        let files: usize = folders.iter().map(|folder| folder.files.len()).sum();
        writeln!(io::stdout(), "{files} generated files are up to date")?;
        Ok(())
    } else {
        bail!(
            "{}\nrun `cargo xtask vectors`, `crds`, `reference` or `monitoring`, look at the difference, and say in the commit why it is right",
            differences.join("\n")
        )
    }
}
