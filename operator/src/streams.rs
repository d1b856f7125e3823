//! Agents' streams: who has joined, and what they are told.
//!
//! [`registry`] is pure; [`service`] carries it out over gRPC, for whom [`entrance`] lets in through their [`doors`].

pub mod doors;
pub mod entrance;
mod meter;
mod plausible;
pub mod registry;
pub mod service;
pub mod window;

pub use registry::{Agent, Key, Registry, StreamId};
pub use window::Window;
