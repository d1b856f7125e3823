//! The CUDA kernels, run on the CPU, against the codec's scalar kernels.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    dead_code,
    unsafe_code,
    reason = "tests: values are small, and memory is handed to C++"
)]

#[path = "../../../../tests/codec/common.rs"]
mod common;
mod device;
mod shim;
mod units;
mod vectors;
