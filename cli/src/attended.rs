//! A process whose parent reads its standard output and ends it by closing its standard input: also a parent that was
//! killed closes it.

use std::io::{Read as _, Write as _};

use serde::Serialize;
use serde_json::json;

/// Ends this process when its input does.
pub(crate) fn end_with_input() {
    std::thread::spawn(|| {
        let mut nothing = [0; 64];
        while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
        std::process::exit(0);
    });
}

/// Tells the parent that this process has come to `state`, and `about` it. A parent that is gone needs no telling.
pub(crate) fn tell(state: &str, about: impl Serialize) {
    let mut line = json!({"state": state, "about": about}).to_string();
    line.push('\n');
    let mut out = std::io::stdout().lock();
    drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
}
