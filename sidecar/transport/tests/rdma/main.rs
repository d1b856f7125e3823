//! Whole links by RDMA, on a model of the cards: everything that `link` asks of links over TCP but for what the path between
//! two sockets does, which is not under these.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

mod choosing;
mod counting;
mod ending;
mod failing;
#[path = "../link/pair.rs"]
mod pair;
#[path = "../link/transferring.rs"]
mod transferring;

use std::sync::LazyLock;

use lynx_transport::LinkConfig;
use lynx_transport::emulate::Fabric;

static FABRIC: LazyLock<Fabric> = LazyLock::new(|| Fabric::new(1));

/// What both sides of each link have: a card.
fn with_means(config: LinkConfig) -> LinkConfig {
    config.with_adapter(Some(FABRIC.adapter()))
}
