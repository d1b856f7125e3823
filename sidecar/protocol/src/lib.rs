//! Pure state machines of a KV transfer: frames, scheduler, reassembly, credit, deadlines.
//!
//! A [`Sender`] and a [`Receiver`] decide; a driver carries out. This crate opens no socket, reads no clock and never sees
//! a byte of payload: it names [`Extent`]s, and the driver copies, posts or reads what they name. That is why the same two
//! machines serve TCP, RDMA and a simulation of many gigabytes on a laptop, and why there is no async in it: a state
//! machine fused to its channels can't be replayed.
//!
//! The stages ([`wire`], `scheduler`, `reassembly`, [`credit`], [`estimator`], `liveness`, `lifecycle`) are strangers to
//! each other. Only `sender.rs` and `receiver.rs`, and `session.rs` with what both do alike, introduce them, so those files
//! are the diagram.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod credit;
pub mod estimator;
mod extent;
pub mod handshake;
mod history;
mod lifecycle;
pub mod limits;
mod liveness;
mod plan;
mod reason;
mod reassembly;
pub mod receiver;
mod scheduler;
pub mod sender;
mod session;
pub mod wire;

pub use credit::CreditBook;
pub use estimator::LinkEstimate;
pub use extent::Extent;
pub use plan::{PlanError, TransferPlan};
pub use reason::{Code, Reason};
pub use receiver::Receiver;
pub use sender::Sender;
