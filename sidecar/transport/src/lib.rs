//! The TCP driver that carries out what the protocol decides.

mod clock;
pub mod emulate;

pub use clock::Clock;
