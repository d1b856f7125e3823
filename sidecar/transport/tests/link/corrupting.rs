//! What a broken path does to a link in clear. One by TLS ends at the record, before anything of it is a frame.

use std::time::Duration;

use lynx_protocol::Code;
use lynx_transport::ReceiverEvent;
use lynx_transport::emulate::Direction;
use lynx_units::{Bytes, TransferId};

use super::pair::{FAST, KIB, Pair, Shape, soon, usual};

#[tokio::test]
async fn a_corrupt_byte_is_named_and_its_segment_is_not_delivered() {
    let mut pair = Pair::new(FAST).await;
    let shape = Shape {
        units: 1,
        segments: vec![(0, 400 * KIB)],
    };
    let transfer = TransferId(1);
    pair.open(transfer, &shape, Duration::from_secs(20)).await;
    // Into the payload: far more than the frames before it.
    pair.relay
        .corrupt(Direction::FromTarget, Bytes::from_kib(200));
    pair.publish_all(transfer, &shape);
    let reason = loop {
        match soon(pair.received.next()).await.unwrap() {
            ReceiverEvent::Failed(_, reason) => break reason,
            ReceiverEvent::LevelComplete { .. } | ReceiverEvent::SegmentComplete { .. } => {
                panic!("a corrupt segment was delivered")
            }
            _ => {}
        }
    };
    assert_eq!(reason.code(), Code::Corrupt, "{reason}");
    assert_eq!(pair.sent_failure(transfer).await.code(), Code::Corrupt);
    assert_eq!(pair.receiver.stats().protocol.corrupt, 1);
}

#[tokio::test]
async fn a_corrupt_header_ends_the_link_on_both_sides_and_says_so() {
    let mut pair = Pair::new(FAST).await;
    pair.open(TransferId(1), &usual(), Duration::from_secs(20))
        .await;
    // The next byte from the sender is a frame's first: a chunk's, or a heartbeat's.
    pair.relay.corrupt(Direction::FromTarget, Bytes::ZERO);
    pair.publish_all(TransferId(1), &usual());
    let reason = pair.received_failure(TransferId(1)).await;
    assert_eq!(reason.code(), Code::Protocol, "{reason}");
    assert!(reason.code().is_retryable());
    let broken = soon(pair.received.next()).await;
    assert!(
        matches!(broken, Some(ReceiverEvent::Broken(_))),
        "{broken:?}"
    );
    assert!(soon(pair.received.next()).await.is_none());
    pair.sent_failure(TransferId(1)).await;
}
