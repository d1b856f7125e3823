//! Cards that can't be had: the link is made by TCP, and says why.

use std::time::Duration;

use lynx_transport::{Carrier, Clock, Dialler, LinkConfig, Listener, PeerInfo};
use lynx_units::Bytes;

use super::pair::LOOPBACK;
use super::{CARD, cards};

/// Why a link has no RDMA whose dialling side has these cards, and the other the usual one.
async fn by_tcp(choice: &str, memory: Bytes) -> String {
    let plain = || LinkConfig::new(Clock::start(), PeerInfo::new("a side")).unwrap();
    let there = plain().with_adapter(Some(cards(CARD, Bytes::from_mib(64))));
    let here = plain().with_adapter(Some(cards(choice, memory)));
    let mut listener = Listener::bind(LOOPBACK, there).unwrap();
    let mut dialler = Dialler::new(listener.address(), here);
    let patience = Duration::from_secs(10);
    let (_accepted, dialled) = tokio::join!(listener.accept(), dialler.connect(patience));
    let dialled = dialled.unwrap();
    assert_eq!(dialled.carrier(), Carrier::Tcp);
    dialled.without_rdma().unwrap().to_owned()
}

#[tokio::test]
async fn a_gid_that_is_not_there_is_named_with_those_that_are() {
    let why = by_tcp("*:*:99", Bytes::from_mib(64)).await;
    assert!(
        why.starts_with("there is no *:*:99; there are: rxe0:1:0"),
        "{why}"
    );
    assert!(
        why.contains("rxe0:1:1 RoCEv2 192.168.77.1/24 on veth0"),
        "{why}"
    );
}

#[tokio::test]
async fn a_peer_that_no_card_reaches_is_named() {
    let why = by_tcp("*", Bytes::from_mib(64)).await;
    assert!(
        why.starts_with("no RoCEv2 address of an active port reaches 127.0.0.1"),
        "{why}"
    );
}

#[tokio::test]
async fn a_gid_that_reaches_nothing_is_found_before_anything_is_sent() {
    // Of RoCEv1: the peer's is another.
    let why = by_tcp("rxe0:1:0", Bytes::from_mib(64)).await;
    println!("{why}");
    assert!(!why.is_empty());
}

#[tokio::test]
async fn a_link_beyond_the_bound_of_registered_memory_says_what_to_raise() {
    let why = by_tcp(CARD, Bytes::from_mib(12)).await;
    assert!(why.contains("raise transfer.rdma.memory"), "{why}");
}

/// Run as a user without rights, who may lock 64 KiB.
#[tokio::test]
#[ignore = "needs a user without rights: make test-rdma"]
async fn unprivileged_a_link_that_may_lock_too_little_says_what_to_do() {
    let why = by_tcp(CARD, Bytes::from_mib(64)).await;
    println!("{why}");
    assert!(
        why.contains("RLIMIT_MEMLOCK is 65536 bytes, without CAP_IPC_LOCK"),
        "{why}"
    );
    assert!(why.contains("LimitMEMLOCK=infinity"), "{why}");
}
