//! An emulated link: a relay of TCP connections in user space that is as narrow, as long and as badly buffered as asked.
//!
//! All connections through one [`Relay`] share one link, first in, first out, as they would share a cable: that is what
//! makes "an anchor behind a bulk" measurable on one machine without root or network namespaces. It is for demonstrations,
//! benches and tests, and refuses to be a network simulator: it loses and reorders nothing (TCP would hide both), and
//! its queue makes the reader wait where a router would drop.
//!
//! Not `tc`: that needs privileges and a kernel with the right modules. The protocol itself is tested in simulated time
//! elsewhere; here real sockets meet a real clock.
//!
//! ```text
//!  client ─┐                ┌─ reader ─┐  queue  ┌───────┐  due at  ┌─ writer ─┐      ┌─ target
//!          ├── connection ──┤          ├─(bounded)─ pacer ├─(+ delay)┤          ├──────┤
//!  client ─┘                └─ reader ─┘         └───────┘          └─ writer ─┘      └─ target
//!                              one such line per direction, shared by all connections
//! ```

mod connection;
mod fabric;
mod options;
mod pipe;
mod pool;
mod relay;
mod room;
mod timer;
mod token;

pub use fabric::{Fabric, FabricCounts};
pub use options::{Direction, LinkOptions};
pub use pool::LentPool;
pub use relay::{Relay, RelayError};
pub use token::TokenClock;
