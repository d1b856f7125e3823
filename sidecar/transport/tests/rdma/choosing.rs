//! Which links go by RDMA, which by TCP instead, and which aren't made.

use std::time::Duration;

use lynx_transport::emulate::Fabric;
use lynx_transport::{
    Carrier, Clock, Connected, DialError, Dialler, LinkConfig, Listener, PeerInfo,
};

use super::pair::LOOPBACK;

/// Both ends of a link between sides of these means, the dialled one first.
pub(crate) async fn connected(means: [LinkConfig; 2]) -> [Connected; 2] {
    let [near, far] = means;
    let mut listener = Listener::bind(LOOPBACK, far).unwrap();
    let mut dialler = Dialler::new(listener.address(), near);
    let patience = Duration::from_secs(10);
    let (accepted, dialled) = tokio::join!(listener.accept(), dialler.connect(patience));
    [dialled.unwrap(), accepted]
}

/// Why the dialling side has no link between sides of these means. Where it is that side which refuses, the other has spoken last and
/// holds its end until it learns of it: either may be first here.
async fn refused(means: [LinkConfig; 2]) -> DialError {
    let [near, far] = means;
    let mut listener = Listener::bind(LOOPBACK, far).unwrap();
    let mut dialler = Dialler::new(listener.address(), near);
    let dialled = dialler.try_connect();
    let accepts = async {
        loop {
            listener.accept().await;
        }
    };
    tokio::select! {
        dialled = dialled => dialled.unwrap_err(),
        () = accepts => unreachable!("it accepts for as long as it is asked"),
    }
}

pub(crate) fn plain() -> LinkConfig {
    LinkConfig::new(Clock::start(), PeerInfo::new("a side")).unwrap()
}

fn on(fabric: &Fabric) -> LinkConfig {
    plain().with_adapter(Some(fabric.adapter()))
}

/// What both ends say of a link that came up by TCP.
async fn by_tcp(means: [LinkConfig; 2]) -> [Option<String>; 2] {
    let ends = connected(means).await;
    ends.map(|end| {
        assert_eq!(end.carrier(), Carrier::Tcp);
        end.without_rdma().map(str::to_owned)
    })
}

#[tokio::test]
async fn rdma_is_used_where_both_sides_have_it() {
    let fabric = Fabric::new(2);
    for end in connected([on(&fabric), on(&fabric)]).await {
        assert_eq!((end.carrier(), end.without_rdma()), (Carrier::Rdma, None));
    }
}

#[tokio::test]
async fn tcp_is_used_where_one_side_has_no_rdma_and_the_other_says_so() {
    let fabric = Fabric::new(2);
    let [here, there] = by_tcp([on(&fabric), plain()]).await;
    assert!(here.unwrap().contains("takes no part in RDMA"));
    assert_eq!(there, None);
    let [here, there] = by_tcp([plain(), on(&fabric)]).await;
    assert_eq!(here, None);
    assert!(there.unwrap().contains("takes no part in RDMA"));
    assert_eq!(by_tcp([plain(), plain()]).await, [None, None]);
}

#[tokio::test]
async fn tcp_is_used_where_a_card_can_not_be_had_and_that_side_says_why() {
    let (fabric, full) = (Fabric::new(3), Fabric::new(4));
    full.set_out(true);
    let no_room = "the model has no room for a queue pair";
    let of_peer = format!("of the peer: {no_room}");
    let said = by_tcp([on(&full), on(&fabric)]).await;
    assert_eq!(said, [Some(no_room.to_owned()), Some(of_peer.clone())]);
    let said = by_tcp([on(&fabric), on(&full)]).await;
    assert_eq!(said, [Some(of_peer), Some(no_room.to_owned())]);
    // Cards that don't know each other.
    for said in by_tcp([on(&fabric), on(&Fabric::new(5))]).await {
        assert!(said.unwrap().contains("no such queue pair"));
    }
}

#[tokio::test]
async fn tcp_is_used_where_full_packets_get_lost_between_two_cards() {
    let fabric = Fabric::new(6);
    fabric.set_longest(Some(1024));
    let [here, _] = by_tcp([on(&fabric), on(&fabric)]).await;
    let here = here.unwrap();
    assert!(here.contains("packets don't come through"), "{here}");
}

#[tokio::test]
async fn where_rdma_is_required_there_is_no_other_link_and_it_is_said_why() {
    let fabric = Fabric::new(7);
    let full = Fabric::new(8);
    full.set_out(true);
    let only = |config: LinkConfig| config.requiring_rdma(true);
    for end in connected([only(on(&fabric)), only(on(&fabric))]).await {
        assert_eq!(end.carrier(), Carrier::Rdma);
    }
    for (means, why) in [
        ([only(plain()), on(&fabric)], "has no card"),
        ([only(on(&fabric)), plain()], "takes no part in RDMA"),
        ([only(on(&full)), on(&fabric)], "no room for a queue pair"),
        ([plain(), only(on(&fabric))], "takes no part in RDMA"),
        ([on(&fabric), only(plain())], "has no card"),
        ([on(&fabric), only(on(&full))], "no room for a queue pair"),
        ([on(&full), only(on(&fabric))], "no room for a queue pair"),
    ] {
        let error = refused(means).await;
        let from_here = matches!(error, DialError::NoRdma { .. });
        assert!(from_here || matches!(error, DialError::Refused { .. }));
        assert!(error.to_string().contains(why), "{error}");
    }
}
