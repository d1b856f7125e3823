//! The agent as a process: what it says, when it ends, and with which status.
#![expect(clippy::unwrap_used, reason = "a test's failure is its report")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lynx-agent"));
    command.env_remove("RUST_LOG");
    command
}

fn configured(folder: &Path, yaml: &str) -> Command {
    let path = folder.join("agent.yaml");
    std::fs::write(&path, yaml).unwrap();
    let mut command = agent();
    command.arg("--config").arg(path);
    command
}

fn yaml(folder: &Path, role: &str, http: &str) -> String {
    let folder = folder.display();
    format!(
        "{{role: {role}, listen: {{http: '{http}', drain: '127.0.0.1:0', peer: '127.0.0.1:0', data: '127.0.0.1:0'}}, engine: {{socket: {folder}/engine.sock, sharedDirectory: {folder}}}}}"
    )
}

/// Waits for the address in the log.
fn listening(process: &mut Child) -> (SocketAddr, BufReader<ChildStderr>) {
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended: {all}");
        all.push_str(&line);
        if let Some((_, address)) = line.trim().split_once("http=") {
            return (address.parse().unwrap(), log);
        }
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: agent\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn terminate(process: &Child) {
    let id = i32::try_from(process.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn mistakes_end_it_before_anything_is_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = yaml(folder.path(), "decod", "127.0.0.1:0");
    let output = configured(folder.path(), &yaml)
        .env("LYNX_TRANSFER_DEADLINE", "soon")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = stderr(&output);
    assert!(
        said.contains("role") && said.contains("LYNX_TRANSFER_DEADLINE"),
        "{said}"
    );
    assert!(!folder.path().join("engine.sock").exists());

    let missing = agent()
        .args(["--config", "/nowhere.yaml"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(64));
    let folder_yaml = self::yaml(folder.path(), "decode", "127.0.0.1:0");
    for filter in ["lynx=loudly", "inof"] {
        let bad = configured(folder.path(), &folder_yaml)
            .env("RUST_LOG", filter)
            .output()
            .unwrap();
        assert_eq!(bad.status.code(), Some(64), "{}", stderr(&bad));
    }
}

#[test]
fn the_configuration_is_printed_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let printed = agent().arg("config").output().unwrap();
    assert!(printed.status.success());
    let text = String::from_utf8(printed.stdout).unwrap();
    let checked = configured(folder.path(), &text)
        .args(["config", "--check"])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));
    let wrong = configured(folder.path(), "{roles: 1}")
        .args(["config", "--check"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(64));
}

#[test]
fn either_role_lives_without_an_engine_and_ends_when_it_is_told_to() {
    for role in ["prefill", "decode"] {
        let folder = tempfile::tempdir().unwrap();
        let yaml = yaml(folder.path(), role, "127.0.0.1:0");
        let mut process = configured(folder.path(), &yaml)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (address, mut log) = listening(&mut process);
        assert!(get(address, "/livez").contains(" 200 "));
        assert!(get(address, "/startupz").contains(" 200 "));
        let ready = get(address, "/readyz");
        assert!(
            ready.contains(" 503 ") && ready.contains("no engine"),
            "{ready}"
        );
        assert!(get(address, "/metrics").contains("lynx_engine_attached 0"));
        assert_eq!(
            get(address, "/v1/models").contains(" 200 "),
            role == "decode"
        );
        assert!(folder.path().join("engine.sock").exists());
        terminate(&process);
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(0), "{role}: {rest}");
    }
}

#[test]
fn an_address_that_is_taken_ends_it_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let yaml = yaml(folder.path(), "decode", &address);
    let output = configured(folder.path(), &yaml).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains(&address) && said.contains("listen.http"),
        "{said}"
    );
}
