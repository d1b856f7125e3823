//! The command as its users run it: real processes, the real model, a narrow link.
#![cfg(test)]

mod support;

use std::process::{Child, Stdio};
use std::time::Duration;

use lynx::rows::TtftRow;
use lynx::run::Method;
use support::{Folder, MARK, lynx, parts_of, signal, text, until};

/// A demo that takes some seconds: a short prompt, a link to match.
fn short_demo(folder: &Folder, more: &[&str]) -> Vec<TtftRow> {
    demo_over("40mbit", folder, more)
}

fn demo_over(link: &str, folder: &Folder, more: &[&str]) -> Vec<TtftRow> {
    let (json, page) = (folder.path("rows.json"), folder.path("page.html"));
    let output = lynx()
        .args([
            "demo",
            "--prompt-tokens",
            "300",
            "--tokens",
            "20",
            "--link",
            link,
        ])
        .args(["--json", &json, "--report", &page])
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("Lynx exact"), "{shown}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("<svg") && page.ends_with("</html>\n"),
        "the page is whole"
    );
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

fn row(rows: &[TtftRow], method: Method) -> &TtftRow {
    rows.iter().find(|row| row.method == method).unwrap()
}

fn assert_exact(rows: &[TtftRow]) {
    let exact = row(rows, Method::LynxExact);
    assert_eq!(exact.equal_to_bf16, Some(true));
    let share = exact.wire_bytes as f64 / row(rows, Method::Bf16).wire_bytes as f64;
    // A short prompt has more parameters and raw tokens to a code than a long one.
    assert!((0.5..0.76).contains(&share), "{share}");
    assert!(exact.accepted <= exact.drafted);
}

#[test]
fn a_warm_demo_gives_bf16s_tokens_for_fewer_bytes() {
    // Narrow enough that a draft pays on a machine that is busy with other tests too.
    let rows = demo_over("10mbit", &Folder::new(), &[]);
    assert_eq!(rows.len(), Method::ALL.len());
    assert_exact(&rows);
    assert!(
        row(&rows, Method::LynxExact).drafted > 0,
        "there was time to draft"
    );
}

#[test]
fn a_cold_demo_streams_layers_and_gives_the_same_tokens() {
    assert_exact(&short_demo(&Folder::new(), &["--scenario", "cold"]));
}

#[test]
fn sampled_output_is_bf16s_too() {
    assert_exact(&short_demo(
        &Folder::new(),
        &["--temperature", "0.9", "--seed", "7"],
    ));
}

#[test]
fn every_anchor_width_gives_the_same_tokens() {
    for width in ["1", "2.5", "8"] {
        assert_exact(&short_demo(&Folder::new(), &["--anchor", width]));
    }
}

#[test]
fn a_text_and_a_question_of_the_users_own_are_asked() {
    let folder = Folder::new();
    let own = folder.write(
        "own.txt",
        "The lighthouse keeper's cat is called Biscuit. ".repeat(20),
    );
    let question = "What is the cat called?";
    assert_exact(&short_demo(
        &folder,
        &["--prompt-file", &own, "--question", question],
    ));
}

/// A demo whose processes can be told from others'; two agents and two engines run.
fn running_demo(folder: &Folder, more: &[&str]) -> (Child, String) {
    let page = folder.path("page.html");
    let mark = page.clone();
    let demo = lynx()
        .args(["demo", "--report", &page])
        .args(more)
        .env(MARK, &mark)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("both nodes run", || parts_of(&mark).len() == 4);
    (demo, mark)
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let folder = Folder::new();
    let (mut demo, mark) = running_demo(&folder, &[]);
    signal("-INT", demo.id());
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    until("no process is left", || parts_of(&mark).is_empty());
}

#[test]
fn a_killed_parent_takes_its_nodes_with_it() {
    let folder = Folder::new();
    let (mut demo, mark) = running_demo(&folder, &[]);
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("no process is left", || parts_of(&mark).is_empty());
}

#[test]
fn a_killed_prefill_node_is_named_in_bounded_time() {
    let folder = Folder::new();
    let slow = ["--link", "1mbit", "--prompt-tokens", "300"];
    let (demo, mark) = running_demo(&folder, &slow);
    for (process, arguments) in parts_of(&mark) {
        if arguments.contains("prefill") {
            signal("-KILL", process);
        }
    }
    let output = support::wait_at_most(demo, Duration::from_secs(90));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("prefill node"), "{said}");
}
