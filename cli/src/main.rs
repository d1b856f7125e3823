//! The lynx command.
fn main() {}
