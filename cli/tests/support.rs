//! What the tests of the command share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "each test program uses a part of it, and what can't be set up has failed"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use lynx::chat::Chat;
use lynx::cluster::{Options, RunSpec};
use lynx::run::Method;
use lynx_units::{BitRate, Width};

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

/// Nodes of the program under test and the default model, whose engines have room for so many tokens.
pub(crate) fn options(link_megabits: u64, threads: usize, max_tokens: u32) -> Options {
    Options {
        program: env!("CARGO_BIN_EXE_lynx").into(),
        model: model(),
        profile: None,
        link: BitRate::from_megabits_per_second(link_megabits),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        threads,
        max_tokens,
    }
}

/// The tokens of the text that tests ask about.
pub(crate) fn prose() -> Vec<u32> {
    let chat = Chat::open(&model()).unwrap();
    let text = include_str!("../../profiles/calibration/prose.txt");
    chat.tokenizer().prompt(text).unwrap().clone()
}

/// What to ask where the most likely tokens are wanted, on an anchor of four bits.
pub(crate) fn greedy(method: Method, prompt: &[u32], max_tokens: u32) -> RunSpec {
    RunSpec {
        method,
        prompt: prompt.to_vec(),
        max_tokens,
        temperature: 0.0,
        seed: 0,
        anchor: Width::from_bits(4),
    }
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

/// What tells one test's processes from another's: children inherit it.
pub(crate) const MARK: &str = "LYNX_TEST_MARK";

/// The agents and engines that were started under this mark: their ids and arguments.
pub(crate) fn parts_of(mark: &str) -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| part(&entry.path(), &format!("{MARK}={mark}")))
        .collect()
}

fn part(process: &Path, mark: &str) -> Option<(u32, String)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let environment = std::fs::read(process.join("environ")).ok()?;
    let marked = text(&environment).split('\0').any(|entry| entry == mark);
    let arguments = std::fs::read(process.join("cmdline")).ok()?;
    let arguments = text(&arguments).replace('\0', " ");
    (marked && arguments.contains(" --attended")).then_some((pid, arguments))
}

/// Sends a process a signal.
///
/// # Panics
/// Where there is no such process.
pub(crate) fn signal(name: &str, process: u32) {
    let sent = Command::new("kill")
        .args([name, &process.to_string()])
        .status();
    assert!(sent.unwrap().success());
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
