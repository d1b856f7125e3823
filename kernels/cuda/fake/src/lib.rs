//! A library that looks like the CUDA driver and runs Lynx's kernels on the CPU, so that what loads and launches them is
//! tested where there is no GPU.
//!
//! A test puts it where the loader looks for `libcuda.so`. The GPU's memory is the process's; a module's code is a text,
//! `fake:BUILD`; a stream does what it is asked for when somebody waits for it (`queue.rs`), and of several streams in an order
//! that `LYNX_FAKE_CUDA_SEED` decides. Every call is checked as the driver would: a handle that nobody made or that was destroyed
//! before is refused, and so is destroying what is still in use. Memory is files in memory, so that processes do share what they
//! export, by descriptors and by CUDA IPC; the latter works within one process too, as the driver's doesn't. No model of time, of
//! several GPUs, or of kernels other than Lynx's.
#![expect(unsafe_code, reason = "the driver's functions, as C has them")]

mod calls;
mod queue;
mod shared;
mod state;
