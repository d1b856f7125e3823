//! See `lynx_parsers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lynx_parsers::read("relayed_request", bytes));
