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
mod lending;
#[path = "../link/pair.rs"]
mod pair;
#[path = "../link/transferring.rs"]
mod transferring;

use std::sync::{Arc, LazyLock};

use lynx_transport::LinkConfig;
use lynx_transport::emulate::Fabric;
use lynx_transport::rdma::Adapter;

static FABRIC: LazyLock<Fabric> = LazyLock::new(|| Fabric::new(1));

fn adapter() -> Arc<dyn Adapter> {
    FABRIC.adapter()
}

/// What both sides of each link have: a card.
fn with_means(config: LinkConfig) -> LinkConfig {
    config.with_adapter(Some(adapter()))
}
