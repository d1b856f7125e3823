//! Whole links: two sides, real sockets, an emulated link between them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

mod failing;
mod meeting;
mod mute;
mod pair;
mod transferring;
