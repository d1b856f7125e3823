//! A program with RDMA in it starts on a machine without libibverbs.
#![cfg(test)]

use std::process::Command;

use lynx_verbs::Library;

#[test]
fn the_program_does_not_ask_for_libibverbs_when_it_starts() {
    // So that this program has the code: what it answers depends on the machine, and is a sentence either way.
    if let Err(error) = Library::open().map(|library| library.names()) {
        assert!(error.to_string().starts_with("RDMA needs "), "{error}");
    }
    let program = std::env::current_exe().unwrap();
    let read = Command::new("readelf")
        .arg("--dynamic")
        .arg(program)
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}");
    let needed = String::from_utf8(read.stdout).unwrap();
    assert!(needed.contains("[libc.so.6]"), "{needed}");
    assert!(
        !needed.contains("ibverbs") && !needed.contains("libnl"),
        "{needed}"
    );
}
