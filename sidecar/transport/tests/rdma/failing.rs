//! What a card's failure does, and what of a peer stays known.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::{Code, CreditBook};
use lynx_tls::authority::Authority;
use lynx_transport::emulate::Fabric;
use lynx_transport::{Carrier, Clock, ReceiverEvent};
use lynx_units::{Bytes, SegmentIndex, TransferId, UnitIndex};

use super::choosing::{connected, plain};
use super::pair::{KIB, MIB, Shape, payload, soon};

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
async fn a_card_that_fails_ends_the_link_with_what_it_says() {
    let fabric = Fabric::new(6);
    let means = || plain().with_adapter(Some(fabric.adapter()));
    let [near, far] = connected([means(), means()]).await;
    let book = CreditBook::new(Bytes::from_mib(64));
    let window = ReceiverConfig {
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

#[tokio::test]
async fn a_link_over_several_cards_loses_all_but_one_and_no_byte() {
    let fabric = Fabric::with_cards(8, 3);
    let means = || plain().with_adapter(Some(fabric.adapter()));
    let [near, far] = connected([means(), means()]).await;
    let book = CreditBook::new(Bytes::from_mib(64));
    let window = ReceiverConfig {
        window: [Bytes::from_mib(16); 2],
    };
    let (receiver, mut received) = near.into_receiver(window, &book).unwrap();
    let (sender, _sent) = far.into_sender();
    let shape = Shape {
        units: 32,
        segments: vec![(0, 64 * KIB), (1, MIB)],
    };
    let transfer = TransferId(1);
    let deadline = Clock::start().now() + Duration::from_secs(60);
    sender.open(shape.open(transfer, deadline)).unwrap();
    for unit in (0..shape.units).map(UnitIndex) {
        let segments = [0, 1].map(|segment| payload(&shape, transfer, unit, SegmentIndex(segment)));
        sender.publish(transfer, unit, segments.into()).unwrap();
    }
    let mut segments = 0;
    loop {
        match soon(received.next()).await.unwrap() {
            ReceiverEvent::Offered { .. } => receiver.accept(transfer, shape.plan()).unwrap(),
            ReceiverEvent::SegmentComplete {
                unit,
                segment,
                bytes,
                ..
            } => {
                assert!(*bytes == *payload(&shape, transfer, unit, segment).bytes);
                segments += 1;
                match segments {
                    10 => fabric.fail_card(2),
                    30 => fabric.fail_card(0),
                    _ => {}
                }
            }
            ReceiverEvent::Complete(_) => break,
            ReceiverEvent::Failed(_, reason) => panic!("{reason}"),
            _ => {}
        }
    }
    assert_eq!(segments, 2 * shape.units);
    assert!(fabric.counts().lost >= 2, "{:?}", fabric.counts());
}
