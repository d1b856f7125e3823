//! The `lynx-operator` program.

fn main() {}
