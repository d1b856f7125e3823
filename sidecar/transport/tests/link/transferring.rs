//! What a link that works does.

use std::time::Duration;

use lynx_protocol::Code;
use lynx_protocol::limits::SILENCE_LIMIT;
use lynx_protocol::sender::Event as Sent;
use lynx_transport::ReceiverEvent;
use lynx_units::{BitRate, Bytes, TransferId};

use super::pair::{FAST, KIB, MIB, Pair, Shape, is_segment, payload, soon, usual};

#[tokio::test]
async fn every_byte_arrives_in_its_place_and_level_by_level() {
    let mut pair = Pair::new(FAST).await;
    let shape = usual();
    let transfer = TransferId(7);
    pair.open(transfer, &shape, Duration::from_secs(20)).await;
    pair.publish_all(transfer, &shape);
    let mut levels = Vec::new();
    let mut segments = 0;
    loop {
        match soon(pair.received.next()).await.unwrap() {
            ReceiverEvent::SegmentComplete {
                transfer,
                unit,
                segment,
                bytes,
                checksum,
            } => {
                let sent = payload(&shape, transfer, unit, segment);
                assert!(*bytes == *sent.bytes, "unit {unit} segment {segment}");
                assert_eq!(checksum, sent.checksum);
                segments += 1;
            }
            ReceiverEvent::LevelComplete { level, .. } => levels.push(level),
            ReceiverEvent::Complete(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(levels, [0, 1, 2, 3]);
    assert_eq!(segments, 6 * 5);
    assert_eq!(pair.sent_event().await, Sent::Accepted(transfer));
    assert_eq!(pair.sent_event().await, Sent::Complete(transfer));
    let stats = pair.sender.stats();
    let total = Bytes::new(6 * u64::from(3 * KIB + 300 * KIB + 333_333));
    assert_eq!(stats.protocol.sent.into_iter().sum::<Bytes>(), total);
    assert!(stats.wire_sent.into_iter().sum::<Bytes>() > total);
}

#[tokio::test]
async fn an_anchor_overtakes_a_residual_that_was_published_long_before() {
    let mut pair = Pair::new(BitRate::from_megabits_per_second(200)).await;
    let bulk = Shape {
        units: 16,
        segments: vec![(0, KIB), (1, MIB)],
    };
    let small = Shape {
        units: 1,
        segments: vec![(0, 256 * KIB)],
    };
    pair.open(TransferId(1), &bulk, Duration::from_secs(20))
        .await;
    pair.publish_all(TransferId(1), &bulk);
    let mut bulk_segments = 0;
    while bulk_segments < 2 {
        let event = soon(pair.received.next()).await.unwrap();
        bulk_segments += u32::from(is_segment(&event, TransferId(1), 1));
    }
    // 14 MiB, about 0.6 s, are still to come.
    pair.offer(TransferId(2), &small, Duration::from_secs(20));
    pair.publish_all(TransferId(2), &small);
    let mut after = 0;
    loop {
        match soon(pair.received.next()).await.unwrap() {
            ReceiverEvent::Offered { transfer, .. } => {
                pair.receiver.accept(transfer, small.plan()).unwrap();
            }
            ReceiverEvent::Complete(TransferId(2)) => break,
            event => after += u32::from(is_segment(&event, TransferId(1), 1)),
        }
    }
    assert!(
        after <= 3,
        "{after} MiB of bulk came before 0.25 MiB of anchor"
    );
}

#[tokio::test]
async fn an_idle_link_stays_up_by_its_heartbeats() {
    let mut pair = Pair::new(FAST).await;
    let longer_than_silence = SILENCE_LIMIT + Duration::from_millis(500);
    let idle = tokio::time::timeout(longer_than_silence, pair.received.next()).await;
    assert!(idle.is_err(), "{idle:?}");
    let shape = usual();
    pair.open(TransferId(1), &shape, Duration::from_secs(20))
        .await;
    pair.publish_all(TransferId(1), &shape);
    pair.complete(TransferId(1)).await;
    assert!(pair.sender.stats().estimate.round_trip.is_some());
}

#[tokio::test]
async fn a_cancelled_transfer_ends_on_both_sides_and_a_rejected_one_on_the_senders() {
    let mut pair = Pair::new(FAST).await;
    let shape = usual();
    pair.open(TransferId(1), &shape, Duration::from_secs(20))
        .await;
    pair.receiver
        .cancel(TransferId(1), "the client left")
        .unwrap();
    let cancelled = soon(pair.received.next()).await.unwrap();
    assert!(
        matches!(&cancelled, ReceiverEvent::Cancelled(TransferId(1), why) if why.text() == "the client left"),
        "{cancelled:?}"
    );
    assert_eq!(pair.sent_event().await, Sent::Accepted(TransferId(1)));
    let cancelled = pair.sent_event().await;
    assert!(
        matches!(&cancelled, Sent::Cancelled(TransferId(1), why) if why.text() == "the client left"),
        "{cancelled:?}"
    );
    pair.offer(TransferId(2), &shape, Duration::from_secs(20));
    let offered = soon(pair.received.next()).await.unwrap();
    assert!(matches!(
        offered,
        ReceiverEvent::Offered {
            transfer: TransferId(2),
            ..
        }
    ));
    pair.receiver
        .reject(TransferId(2), "no blocks left")
        .unwrap();
    let failed = pair.sent_failure(TransferId(2)).await;
    assert_eq!(
        (failed.code(), failed.text()),
        (Code::Rejected, "no blocks left")
    );
}

#[tokio::test]
async fn a_plan_that_does_not_fit_the_window_is_rejected_with_what_to_raise() {
    let mut pair = Pair::with_window(FAST, Bytes::from_mib(1)).await;
    let shape = Shape {
        units: 1,
        segments: vec![(0, 2 * MIB)],
    };
    pair.open(TransferId(1), &shape, Duration::from_secs(20))
        .await;
    let here = pair.received_failure(TransferId(1)).await;
    assert!(here.text().contains("raise the window"), "{here}");
    let there = pair.sent_failure(TransferId(1)).await;
    assert_eq!((there.code(), there.text()), (Code::Rejected, here.text()));
}
