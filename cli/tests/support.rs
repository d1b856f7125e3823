//! What the tests of the command share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "each test program uses a part of it, and what can't be set up has failed"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

/// The command under test.
pub(crate) fn lynx() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lynx"))
}

/// The default model.
///
/// # Panics
/// Where it is not in the cache.
pub(crate) fn model() -> PathBuf {
    let path = lynx::config::cache_folder()
        .unwrap()
        .join("models")
        .join(lynx::model_file::FILE);
    assert!(
        path.is_file(),
        "{} is missing: run `make model`",
        path.display()
    );
    path
}

/// A temporary folder.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The node processes that were started on this model file: their ids and arguments.
pub(crate) fn nodes_of(model: &str) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| node(&entry.path(), model))
        .collect()
}

fn node(process: &Path, model: &str) -> Option<(u32, String)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let arguments = std::fs::read(process.join("cmdline")).ok()?;
    let arguments = text(&arguments).replace('\0', " ");
    (arguments.contains(" node ") && arguments.contains(model)).then_some((pid, arguments))
}

/// Looks again and again until it is so; a process's end can't be waited for by anybody but its parent.
///
/// # Panics
/// Where it is not so within a minute.
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    const LOOKS: u32 = 6000;
    for _ in 0..LOOKS {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come to this within a minute: {what}");
}

/// The output of a process that must end by itself.
///
/// # Panics
/// Where it doesn't end in time.
pub(crate) fn wait_at_most(mut child: Child, time: Duration) -> Output {
    const LOOK: Duration = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while child.try_wait().unwrap().is_none() {
        if waited >= time {
            child.kill().unwrap();
            panic!("the command still runs after {} s", time.as_secs());
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    child.wait_with_output().unwrap()
}

/// A node that a test is the parent of.
pub(crate) struct Node {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Node {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        use std::io::BufRead as _;
        let mut command = lynx();
        let command = command
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next report.
    pub(crate) fn line(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
