//! `lynx doctor`: looks at a machine as an agent would find it, and says of everything that it finds what to do about it.
//!
//! It changes nothing, needs no running agent and no rights of its own: what it may not see, it says so. Each subject is a
//! pair: what is read, from files under a root or from sockets, and a judgement of it that is pure. Why not a script: the
//! questions are asked with the agent's own configuration and the agent's own protocols, so an answer that is fine here is
//! fine there.

mod certificates;
mod clocks;
mod devices;
mod engine;
mod finding;
mod limits;
mod network;
mod peer;
pub mod rdma;
mod root;

use lynx_tls::UnixTime;

use crate::config::Config;
use crate::security::Security;

pub use finding::{Finding, Grade, write};
pub use root::Root;

/// All findings: of this machine under `root`, of the agent that `config` describes, and of the peers at `peers`
/// (`host:port` of their peer control).
pub async fn examine(root: &Root, config: &Config, peers: &[String]) -> Vec<Finding> {
    let mut findings = clocks::examine(root);
    findings.extend(network::examine(root));
    findings.extend(limits::examine(root));
    findings.extend(devices::examine(root));
    findings.extend(engine::examine(config).await);
    let security = Security::open(&config.tls);
    findings.extend(certificates::examine(
        &config.tls,
        &security,
        UnixTime::now(),
    ));
    for peer in peers {
        match &security {
            Ok(security) => findings.extend(peer::examine(peer, security).await),
            Err(_) => findings.push(unasked(peer)),
        }
    }
    findings
}

/// A peer takes nobody without a certificate.
fn unasked(peer: &str) -> Finding {
    Finding::problem(
        "peer",
        format!("{peer} was not asked: there is no certificate to show it"),
        "mend the certificate first, as above",
    )
}

#[cfg(test)]
mod tests;
