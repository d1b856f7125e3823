//! Whole links by TLS: everything that `link` asks of links in clear, and who is kept out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

#[path = "../link/failing.rs"]
mod failing;
mod keeping_out;
#[path = "../link/meeting.rs"]
mod meeting;
#[path = "../link/mute.rs"]
mod mute;
#[path = "../link/pair.rs"]
mod pair;
mod renewing;
#[path = "../link/transferring.rs"]
mod transferring;

use std::sync::LazyLock;

use lynx_tls::Credentials;
use lynx_tls::authority::Authority;
use lynx_transport::LinkConfig;

const NAME: &str = "spiffe://test/ns/team/lynx/small";

static CREDENTIALS: LazyLock<Credentials> =
    LazyLock::new(|| Authority::new().unwrap().credentials(NAME).unwrap());

/// What both sides of each link have: one certificate.
fn with_means(config: LinkConfig) -> LinkConfig {
    config.with_credentials(credentials())
}

fn credentials() -> Option<Credentials> {
    Some(CREDENTIALS.clone())
}
