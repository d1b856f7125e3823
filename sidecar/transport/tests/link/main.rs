//! Whole links: two sides, real sockets, an emulated link between them; in clear. `secured` runs the same by TLS.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

mod corrupting;
mod failing;
mod meeting;
mod mute;
mod pair;
mod transferring;

use lynx_tls::Credentials;
use lynx_transport::LinkConfig;

/// What both sides of each link have: nothing.
fn with_means(config: LinkConfig) -> LinkConfig {
    config
}

fn credentials() -> Option<Credentials> {
    None
}
