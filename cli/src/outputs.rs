//! The files that a command writes at its end, looked at before it begins: minutes of work aren't lost to a misspelt path.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::args::{Bench, Command};

/// Whether all files that `command` is to write can be written. Leaves everything as it was.
///
/// # Errors
/// The first that can't be.
pub fn check(command: &Command) -> Result<()> {
    of(command).into_iter().try_for_each(writable)
}

/// All of them: a new command has to say what it writes.
fn of(command: &Command) -> Vec<&Path> {
    let paths = match command {
        Command::Demo(demo) => vec![Some(&demo.report), demo.json.as_ref()],
        Command::Calibrate(calibrate) => vec![Some(&calibrate.out)],
        Command::Bench(bench) => vec![match bench {
            Bench::Ttft(ttft) => ttft.output.json.as_ref(),
            Bench::Codec(output) | Bench::Link(output) => output.json.as_ref(),
            Bench::Gpu(gpu) => gpu.output.json.as_ref(),
            Bench::Accuracy(accuracy) => accuracy.output.json.as_ref(),
            Bench::Soak(soak) => soak.output.json.as_ref(),
            Bench::Turns(turns) => turns.output.json.as_ref(),
            Bench::Peer(_) => None,
        }],
        Command::Engine(_) | Command::Agent(_) | Command::Doctor(_) => Vec::new(),
    };
    paths.into_iter().flatten().map(AsRef::as_ref).collect()
}

fn writable(path: &Path) -> Result<()> {
    let found = path.metadata();
    // What is neither a file nor a folder takes what it is given: a terminal, a pipe.
    if found
        .as_ref()
        .is_ok_and(|found| !found.is_file() && !found.is_dir())
    {
        return Ok(());
    }
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("writing {}", path.display()))?;
    if found.is_err() {
        std::fs::remove_file(path).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
