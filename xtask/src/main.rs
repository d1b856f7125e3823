//! Generators of the committed files.
fn main() {}
