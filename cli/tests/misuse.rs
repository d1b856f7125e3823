//! What the command says to what it can't do: one message that names the thing and the way out, status 1 or 2, no panic.
#![cfg(test)]

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use support::{Folder, lynx, model, text};

/// Any that is free.
const ANY_PORT: &str = "127.0.0.1:0";

/// Runs the command, and checks its status and that its message holds all of `words`.
fn refuses(arguments: &[&str], status: i32, words: &[&str]) {
    let output = lynx().args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    for word in words {
        assert!(
            said.contains(word),
            "{arguments:?}: {said:?} does not say {word:?}"
        );
    }
}

#[test]
fn a_command_line_without_sense_is_refused_with_status_2() {
    refuses(&[], 2, &["Usage"]);
    refuses(&["demo", "--link", "100"], 2, &["--link", "100mbit"]);
    refuses(&["demo", "--link", "fast"], 2, &["--link", "100mbit"]);
    refuses(&["demo", "--anchor", "9"], 2, &["--anchor", "1 to 8 bits"]);
    refuses(&["demo", "--scenario", "lukewarm"], 2, &["warm", "cold"]);
    refuses(&["demo", "--temperature", "-1"], 2, &["--temperature"]);
    refuses(&["demo", "--tokens", "1"], 2, &["--tokens"]);
    refuses(&["bench", "speed"], 2, &["speed"]);
    refuses(
        &["engine", "--role", "decode", "--name", ""],
        2,
        &["--name"],
    );
}

#[test]
fn a_bench_of_a_gpu_where_there_is_none_says_why_and_fails() {
    let folder = Folder::new();
    // Where there is a driver, kernels are missing.
    let nowhere = folder.path("nowhere");
    let command = ["bench", "gpu", "--kernels", &nowhere];
    refuses(&command, 1, &["no GPU to measure", "on the processor: "]);
}

#[test]
fn a_file_that_can_not_be_written_is_told_before_the_work_begins() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    let bad = folder.path("missing/out");
    for command in [
        &["demo", "--report", &bad][..],
        &["demo", "--report", &page, "--json", &bad],
        &["calibrate", "--out", &bad],
        &["bench", "ttft", "--json", &bad],
        &["bench", "codec", "--json", &bad],
        &["bench", "link", "--json", &bad],
        &["bench", "gpu", "--json", &bad],
        &["bench", "accuracy", "--json", &bad],
        &["bench", "soak", "--json", &bad],
        &["bench", "turns", "--json", &bad],
        &["bench", "turns", "--json", &folder.path("")],
    ] {
        // Whatever begins to work looks for its model first.
        let output = lynx()
            .args(command)
            .env("LYNX_CACHE", folder.path("cache"))
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("writing"), "{command:?}: {said}");
    }
    assert!(!std::path::Path::new(&page).exists());
}

#[test]
fn a_prompt_that_is_too_long_for_the_demo_is_told_by_its_option() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    refuses(
        &["demo", "--prompt-tokens", "100000", "--report", &page],
        1,
        &["--prompt-tokens is at most 8128"],
    );
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    let foreign = folder.write("foreign.gguf", "this is a text, not a model");
    let empty = folder.write("empty.gguf", "");
    let missing = folder.path("missing.gguf");
    for (file, word) in [
        (&foreign, "GGUF"),
        (&empty, "empty.gguf"),
        (&missing, "missing.gguf"),
    ] {
        refuses(&["demo", "--model", file, "--report", &page], 1, &[word]);
    }
}

#[test]
fn a_truncated_model_is_named() {
    let folder = Folder::new();
    let whole = std::fs::read(model()).unwrap();
    for length in [3, 100, 100_000, whole.len() / 2, whole.len() - 1] {
        let cut = folder.write("cut.gguf", &whole[..length]);
        refuses(
            &[
                "demo",
                "--model",
                &cut,
                "--report",
                &folder.path("page.html"),
            ],
            1,
            &["cut.gguf"],
        );
    }
}

#[test]
fn a_default_model_with_another_hash_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("models")).unwrap();
    folder.write(
        &format!("models/{}", lynx::model_file::FILE),
        "not the model",
    );
    let output = lynx()
        .arg("demo")
        .env("LYNX_CACHE", folder.path(""))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("SHA-256") && text(&output.stderr).contains("make model"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::new();
    let page = folder.path("page.html");
    refuses(
        &["demo", "--listen", &address, "--report", &page],
        1,
        &[&address, "port 0"],
    );
}

/// The agent finds it out once an engine is there: by then its states are told, too, and end with it.
#[test]
fn an_attended_agent_whose_port_for_links_is_taken_says_which_it_is() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for _ in 0..3 {
        let folder = Folder::new();
        let (socket, directory) = (folder.path("engine.sock"), folder.path(""));
        let config = folder.write(
            "agent.yaml",
            json!({
                "role": "prefill",
                "listen": {"http": ANY_PORT, "drain": ANY_PORT, "peer": ANY_PORT, "data": address},
                "engine": {"socket": socket, "sharedDirectory": directory},
            })
            .to_string(),
        );
        let mut agent = lynx()
            .args(["agent", "--attended", "--config", &config])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says that it listens, so its socket is there.
        let mut said = BufReader::new(agent.stdout.take().unwrap()).lines();
        assert!(said.next().unwrap().unwrap().contains("listening"));
        let mut engine = lynx()
            .args(["engine", "--role", "prefill", "--name", "model"])
            .args(["--socket", &socket, "--shared-directory", &directory])
            .arg("--model")
            .arg(model())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Its standard input must stay open: it ends with that.
        let input = agent.stdin.take();
        let output = support::wait_at_most(agent, Duration::from_secs(60));
        drop(input);
        engine.kill().unwrap();
        engine.wait().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let problem = text(&output.stderr);
        assert!(problem.contains(&address), "{problem}");
    }
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_lengths() {
    let folder = Folder::new();
    let long = folder.write(
        "long.txt",
        "one two three four five six seven eight nine ten\n".repeat(1200),
    );
    refuses(
        &[
            "demo",
            "--prompt-file",
            &long,
            "--report",
            &folder.path("page.html"),
        ],
        1,
        &["8192", "tokens"],
    );
}

#[test]
fn an_empty_prompt_file_and_a_binary_one_are_named() {
    let folder = Folder::new();
    let binary = folder.write("noise.bin", [0xff, 0xfe, 0x00, 0x80]);
    let empty = folder.write("empty.txt", " \n");
    let missing = folder.path("missing.txt");
    for file in [&binary, &empty, &missing] {
        refuses(
            &[
                "demo",
                "--prompt-file",
                file,
                "--report",
                &folder.path("page.html"),
            ],
            1,
            &[file],
        );
    }
}

#[test]
fn another_profile_is_refused_by_name() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    let nonsense = folder.write("profile.json", "{\"format\": \"something else\"}");
    refuses(
        &["demo", "--profile", &nonsense, "--report", &page],
        1,
        &["profile.json"],
    );
}

#[test]
fn a_page_that_cant_be_written_is_named() {
    let page = Folder::new().path("no/such/folder/page.html");
    refuses(&["demo", "--report", &page], 1, &[&page]);
}

#[test]
fn an_agent_that_is_misconfigured_says_every_mistake_and_exits_with_64() {
    let folder = Folder::new();
    let config = folder.write(
        "agent.yaml",
        "role: both\ntransfer: {anchor: {minBits: 9}}\nlisten: {htp: 1}\n",
    );
    refuses(
        &["agent", "--config", &config],
        64,
        &["role", "transfer.anchor.minBits", "listen.htp"],
    );
}

#[test]
fn an_engine_without_a_shared_folder_names_it() {
    let folder = Folder::new();
    let missing = folder.path("missing");
    let socket = folder.path("engine.sock");
    refuses(
        &[
            "engine",
            "--role",
            "decode",
            "--max-tokens",
            "128",
            "--socket",
            &socket,
            "--shared-directory",
            &missing,
        ],
        1,
        &[&missing],
    );
}

#[test]
fn a_run_that_is_refused_leaves_the_last_page_as_it_was() {
    let folder = Folder::new();
    let page = folder.write("page.html", "the last page");
    refuses(
        &[
            "demo",
            "--model",
            &folder.path("no.gguf"),
            "--report",
            &page,
        ],
        1,
        &["no.gguf"],
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refuses(
        &["demo", "--listen", &address, "--report", &page],
        1,
        &[&address],
    );
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "the last page");
}

#[test]
fn a_reader_who_leaves_early_is_no_failure() {
    let mut help = lynx()
        .args(["bench", "codec", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(help.stdout.take());
    let output = support::wait_at_most(help, Duration::from_secs(120));
    assert_eq!(text(&output.stderr), "");
}
