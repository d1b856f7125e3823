//! The `lynx-agent` program.

fn main() {}
