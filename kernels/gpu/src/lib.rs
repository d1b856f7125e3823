//! Units of KV in GPU memory: what the kernels are told about a launch, and where an engine's pages lie.
//!
//! The kernels themselves are CUDA C++ in `kernels/cuda`, and `docs/cuda.md` says how they work. This crate computes what a
//! launch needs beyond them from a [`UnitPlan`](lynx_kernels::UnitPlan): the plan that all units share ([`Launch`]), and tables in
//! GPU memory ([`Places`], [`Cut`]).
//!
//! Refuses to be: a driver (it allocates nothing and calls nothing, so that it works the same where there is no GPU) or a
//! second definition of the format, which it takes from `lynx-kernels`. It is a crate of its own so that the codec's users
//! aren't asked about GPUs.

mod abi;
mod extents;
mod launch;
mod pages;
mod tables;

pub use abi::{Block, Extent, Extents, Plan, Run, Status, Unit};
pub use launch::{Launch, LaunchError};
pub use pages::{Pages, PagesError};
pub use tables::{Cut, Places};

/// The segments that the kernels read and write start at multiples of this many bytes.
pub const SEGMENT_ALIGNMENT: usize = 16;
