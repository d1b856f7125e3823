//! The `lynx` library behind the binary.
