//! How links end whose bytes travel by RDMA, and when they don't.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::{Code, CreditBook};
use lynx_tls::authority::Authority;
use lynx_transport::emulate::Fabric;
use lynx_transport::{
    Carrier, Clock, Connected, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent,
};
use lynx_units::{Bytes, TransferId};

use super::pair::{FAST, KIB, LOOPBACK, MIB, Pair, Shape, is_segment, soon, usual};

/// Both ends of a link between sides of these means.
async fn connected(means: [LinkConfig; 2]) -> [Connected; 2] {
    let [near, far] = means;
    let mut listener = Listener::bind(LOOPBACK, far).unwrap();
    let mut dialler = Dialler::new(listener.address(), near);
    let patience = Duration::from_secs(10);
    let (accepted, dialled) = tokio::join!(listener.accept(), dialler.connect(patience));
    [dialled.unwrap(), accepted]
}

fn plain() -> LinkConfig {
    LinkConfig::new(Clock::start(), PeerInfo::new("a side")).unwrap()
}

#[tokio::test]
async fn rdma_is_used_where_both_sides_have_it_and_tcp_where_one_has_not() {
    let fabric = Fabric::new(2);
    let with = || plain().with_adapter(Some(fabric.adapter()));
    for (means, expected) in [
        ([with(), with()], Carrier::Rdma),
        ([with(), plain()], Carrier::Tcp),
        ([plain(), with()], Carrier::Tcp),
    ] {
        let ends = connected(means).await;
        assert_eq!(ends.each_ref().map(Connected::carrier), [expected; 2]);
    }
}

#[tokio::test]
async fn who_the_peer_is_stays_known_when_bytes_leave_its_tls() {
    let fabric = Fabric::new(3);
    let name = "spiffe://test/ns/team/lynx/small";
    let credentials = Authority::new().unwrap().credentials(name).unwrap();
    let means = || {
        let config = plain().with_credentials(Some(credentials.clone()));
        config.with_adapter(Some(fabric.adapter()))
    };
    for end in connected([means(), means()]).await {
        assert_eq!(end.carrier(), Carrier::Rdma);
        assert_eq!(end.identity().unwrap().primary(), name);
    }
}

#[tokio::test]
async fn sides_whose_cards_are_on_different_fabrics_get_no_link() {
    let [here, there] = [4, 5].map(|seed| plain().with_adapter(Some(Fabric::new(seed).adapter())));
    let mut listener = Listener::bind(LOOPBACK, there).unwrap();
    let mut dialler = Dialler::new(listener.address(), here);
    let dialled = tokio::select! {
        dialled = dialler.try_connect() => dialled,
        _ = listener.accept() => panic!("a link that can carry nothing"),
    };
    assert!(dialled.is_err());
}

fn bulk() -> Shape {
    Shape {
        units: 64,
        segments: vec![(0, 64 * KIB), (1, MIB)],
    }
}

/// Opens a transfer that takes a while, and waits until it is under way.
async fn under_way(pair: &mut Pair, transfer: TransferId) {
    pair.open(transfer, &bulk(), Duration::from_secs(20)).await;
    pair.publish_all(transfer, &bulk());
    while !is_segment(&soon(pair.received.next()).await.unwrap(), transfer, 1) {}
}

#[tokio::test]
async fn a_process_that_dies_is_noticed_by_its_connection_and_a_retry_succeeds() {
    let mut pair = Pair::new(FAST).await;
    let transfer = TransferId(1);
    under_way(&mut pair, transfer).await;
    pair.relay.cut();
    let reason = pair.received_failure(transfer).await;
    assert_eq!(reason.code(), Code::Disconnected);
    assert_eq!(pair.sent_failure(transfer).await.code(), Code::Disconnected);
    pair.reconnect().await;
    pair.open(transfer, &usual(), Duration::from_secs(20)).await;
    pair.publish_all(transfer, &usual());
    pair.complete(transfer).await;
}

#[tokio::test]
async fn a_card_that_fails_ends_the_link_with_what_it_says() {
    let fabric = Fabric::new(6);
    let means = || plain().with_adapter(Some(fabric.adapter()));
    let [near, far] = connected([means(), means()]).await;
    let book = CreditBook::new(Bytes::from_mib(64));
    let window = lynx_protocol::receiver::ReceiverConfig {
        window: [Bytes::from_mib(16); 2],
    };
    let (_receiver, mut received) = near.into_receiver(window, &book).unwrap();
    let (_sender, _sent) = far.into_sender();
    fabric.fail();
    match soon(received.next()).await {
        Some(ReceiverEvent::Broken(reason)) => {
            assert_eq!(reason.code(), Code::Disconnected);
            assert!(reason.text().contains("retry counter"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    drop(Arc::clone(&book));
}

/// Nothing of the first epoch's chunks that are with the cards may reach the second's.
#[tokio::test]
async fn a_transfer_that_is_cancelled_in_the_middle_leaves_the_next_one_whole() {
    let mut pair = Pair::new(FAST).await;
    for number in 0..8 {
        let (cancelled, next) = (TransferId(2 * number), TransferId(2 * number + 1));
        under_way(&mut pair, cancelled).await;
        pair.receiver.cancel(cancelled, "the client left").unwrap();
        let shape = usual();
        pair.offer(next, &shape, Duration::from_secs(20));
        pair.publish_all(next, &shape);
        loop {
            match soon(pair.received.next()).await.unwrap() {
                ReceiverEvent::Offered { transfer, .. } => {
                    pair.receiver.accept(transfer, shape.plan()).unwrap();
                }
                ReceiverEvent::SegmentComplete {
                    transfer,
                    unit,
                    segment,
                    bytes,
                    ..
                } if transfer == next => {
                    let sent = super::pair::payload(&shape, transfer, unit, segment);
                    assert!(*bytes == *sent.bytes, "unit {unit} segment {segment}");
                }
                ReceiverEvent::Complete(transfer) => {
                    assert_eq!(transfer, next);
                    break;
                }
                ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn the_last_handle_shuts_the_link_down_and_the_peer_learns_why() {
    let mut pair = Pair::new(FAST).await;
    pair.open(TransferId(1), &usual(), Duration::from_secs(20))
        .await;
    let Pair {
        sender,
        sent,
        mut received,
        ..
    } = pair;
    drop((sender, sent));
    let reason = loop {
        match soon(received.next()).await {
            Some(ReceiverEvent::Failed(TransferId(1), reason)) => break reason,
            Some(_) => {}
            None => panic!("the link ended without a word about its transfer"),
        }
    };
    assert_eq!(reason.code(), Code::Shutdown, "{reason}");
}
