//! The two nodes of the demo: processes that hold an engine each, and pass KV from one to the other.
//!
//! A node is one engine on one thread, and sockets on a runtime beside it. What goes between the engine's blocks and the
//! transport's segments is in [`coding`]; who asks whom for what is in [`messages`].

pub mod coding;
pub mod decode;
mod drafting;
mod heap;
pub mod messages;
mod peer;
mod peering;
pub mod prefill;
mod request;
mod setup;
mod tiles;
pub mod whole_blocks;

use std::time::Duration;

use lynx_engine::SamplingError;

/// How long a transfer may take: 47 MB at a megabit per second, and some.
const TRANSFER_TIME: Duration = Duration::from_secs(600);

/// The engine's words for how tokens are chosen.
fn sampling(chosen: messages::Sampling) -> Result<lynx_engine::Sampling, SamplingError> {
    lynx_engine::Sampling::new(chosen.temperature, 0, chosen.top_p, chosen.seed)
}
