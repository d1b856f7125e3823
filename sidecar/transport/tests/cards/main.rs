//! Whole links over cards: Soft-RoCE in the virtual machine that `make test-rdma` starts, with `rxe0` on `veth0` (192.168.77.1).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

#[path = "../rdma/ending.rs"]
mod ending;
#[path = "../rdma/lending.rs"]
mod lending;
mod missing;
#[path = "../link/pair.rs"]
mod pair;
mod pairs;
mod rails;
#[path = "../link/transferring.rs"]
mod transferring;

use std::sync::Arc;

use lynx_transport::LinkConfig;
use lynx_transport::rdma::{Adapter, Cards};
use lynx_units::Bytes;
use lynx_verbs::Path;

/// The virtual machine's first card and its RoCEv2 address.
const CARD: &str = "rxe0:1:1";

/// The cards that this choice fits.
fn cards(choice: &str, memory: Bytes) -> Arc<dyn Adapter> {
    let cards = Cards::new(choice.parse().unwrap(), [Path::default(); 2], memory);
    Arc::new(cards.with_lent(Bytes::from_mib(64)))
}

fn adapter() -> Arc<dyn Adapter> {
    cards(CARD, Bytes::from_mib(256))
}

/// What both sides of each link have. The connections go over the loopback, whose address no card has.
fn with_means(config: LinkConfig) -> LinkConfig {
    config.with_adapter(Some(adapter())).requiring_rdma(true)
}
