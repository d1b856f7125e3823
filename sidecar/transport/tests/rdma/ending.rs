//! How links and transfers end whose bytes travel by RDMA, whoever's cards they are.

use std::time::Duration;

use lynx_protocol::Code;
use lynx_transport::ReceiverEvent;
use lynx_units::TransferId;

use super::pair::{FAST, KIB, MIB, Pair, Shape, is_segment, soon, usual};

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
