//! File descriptors: how many the process may have, and what so many are enough for.
//!
//! A port that strangers can reach must not take those that a kubelet's question needs: what the configuration allows is
//! cut to a share of what there is.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Config, Role};

/// One in so many is for peers, and one in so many for HTTP, on a prefill agent: a peer needs three, and beside them there
/// are up to 640 connections of nobody known yet.
const PREFILL_SHARE: usize = 16;
/// One in so many is for HTTP on a decode agent.
const DECODE_SHARE: usize = 2;

/// Raises the process's limit as far as that is allowed, and cuts what `config` allows to what there are descriptors for.
pub(crate) fn fit(config: &mut Config) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Where it can't be raised it stays.
    setrlimit(Resource::Nofile, raised).ok();
    if let Some(most) = getrlimit(Resource::Nofile).current
        && cut(config, usize::try_from(most).unwrap_or(usize::MAX))
    {
        tracing::warn!(
            descriptors = most,
            peers = config.transfer.max_peers,
            clients = config.http.max_connections,
            "there are few file descriptors, and fewer connections are taken than configured: raise the limit (ulimit -n)"
        );
    }
}

/// Whether anything had to be cut.
fn cut(config: &mut Config, descriptors: usize) -> bool {
    let [peers, clients] = match config.role {
        Role::Prefill => [descriptors / PREFILL_SHARE; 2],
        Role::Decode => [usize::MAX, descriptors / DECODE_SHARE],
    };
    let peers = config.transfer.max_peers.min(peers.max(2));
    let clients = config.http.max_connections.min(clients.max(1));
    let is_cut = peers < config.transfer.max_peers || clients < config.http.max_connections;
    config.transfer.max_peers = peers;
    config.http.max_connections = clients;
    is_cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_cut_to_the_descriptors_that_there_are() {
        let mut prefill = Config::parse("role: prefill", &|_| None).unwrap();
        let asked = prefill.clone();
        assert!(!cut(&mut prefill, 1 << 20));
        assert_eq!(prefill, asked);
        assert!(cut(&mut prefill, 1024));
        let (peers, clients) = (prefill.transfer.max_peers, prefill.http.max_connections);
        assert_eq!((peers, clients), (64, 64));
        assert!(3 * peers + clients + 640 + 16 < 1024);
        let mut decode = Config::parse("", &|_| None).unwrap();
        assert!(cut(&mut decode, 1024));
        assert_eq!(decode.http.max_connections, 512);
    }
}
