//! How transfers and links end when something goes wrong.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::Code;
use lynx_protocol::sender::Event as Sent;
use lynx_transport::{Clock, Listener, ReceiverEvent, SegmentPayload, SharedBytes};
use lynx_units::{BitRate, Bytes, TransferId, UnitIndex};

use super::mute;
use super::pair::{FAST, KIB, LOOPBACK, MIB, Pair, Shape, config, is_segment, soon, usual};

#[tokio::test]
async fn a_cut_fails_the_transfer_on_both_sides_and_a_retry_in_a_new_epoch_succeeds() {
    let mut pair = Pair::new(BitRate::from_megabits_per_second(100)).await;
    let shape = Shape {
        units: 8,
        segments: vec![(0, 64 * KIB), (1, MIB)],
    };
    let transfer = TransferId(1);
    pair.open(transfer, &shape, Duration::from_secs(20)).await;
    pair.publish_all(transfer, &shape);
    while !is_segment(&soon(pair.received.next()).await.unwrap(), transfer, 1) {}
    pair.relay.cut();
    let reason = pair.received_failure(transfer).await;
    assert_eq!(reason.code(), Code::Disconnected);
    assert!(reason.text().contains("127.0.0.1"), "{reason}");
    assert_eq!(pair.sent_failure(transfer).await.code(), Code::Disconnected);
    assert!(
        pair.sender
            .open(shape.open(transfer, pair.clock.now()))
            .is_err()
    );

    let first = pair.receiver.epoch();
    pair.reconnect().await;
    assert!(pair.receiver.epoch() > first);
    assert_eq!(pair.receiver.epoch(), pair.sender.epoch());
    pair.open(transfer, &shape, Duration::from_secs(20)).await;
    pair.publish_all(transfer, &shape);
    pair.complete(transfer).await;
}

#[tokio::test]
async fn a_silent_link_is_noticed_without_a_reset() {
    let mut pair = Pair::new(FAST).await;
    let shape = usual();
    let transfer = TransferId(1);
    pair.open(transfer, &shape, Duration::from_secs(60)).await;
    let start = pair.clock.now();
    pair.relay.set_rate(BitRate::ZERO);
    pair.publish_all(transfer, &shape);
    assert_eq!(pair.received_failure(transfer).await.code(), Code::Silent);
    assert_eq!(pair.sent_failure(transfer).await.code(), Code::Silent);
    let noticed = pair.clock.now() - start;
    assert!(noticed < Duration::from_secs(4), "{noticed:?}");
}

#[tokio::test]
async fn an_application_that_keeps_its_bytes_bounds_its_memory_and_the_deadline_ends_the_transfer()
{
    let window = Bytes::from_mib(2);
    let mut pair = Pair::with_window(FAST, window).await;
    let shape = Shape {
        units: 64,
        segments: vec![(0, 512 * KIB)],
    };
    let transfer = TransferId(1);
    let bytes = SharedBytes::from(vec![1; 512 << 10]);
    let within = Duration::from_secs(1);
    pair.open(transfer, &shape, within).await;
    for unit in (0..shape.units).map(UnitIndex) {
        let bytes = bytes.clone();
        let segment = SegmentPayload { bytes, checksum: 0 };
        pair.sender.publish(transfer, unit, vec![segment]).unwrap();
    }
    let mut kept = Vec::new();
    let reason = loop {
        match soon(pair.received.next()).await.unwrap() {
            ReceiverEvent::SegmentComplete { bytes, .. } => kept.push(bytes),
            ReceiverEvent::Failed(_, reason) => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason.code(), Code::Deadline, "{reason}");
    let received: u64 = pair
        .receiver
        .stats()
        .protocol
        .received
        .map(Bytes::get)
        .iter()
        .sum();
    assert!(received <= window.get(), "{received} bytes of {window}");
    assert!(!kept.is_empty());
    assert_eq!(pair.sent_failure(transfer).await.code(), Code::Deadline);
    // What was kept is given back, and the link is as good as new.
    drop(kept);
    let retry = TransferId(2);
    pair.open(retry, &usual(), Duration::from_secs(20)).await;
    pair.publish_all(retry, &usual());
    pair.complete(retry).await;
}

#[tokio::test]
async fn a_peer_that_stops_reading_takes_no_memory_and_the_deadline_ends_the_transfer() {
    let clock = Clock::start();
    let mut listener = Listener::bind(LOOPBACK, config(clock, "prefill")).unwrap();
    let transfer = TransferId(1);
    let peer = tokio::spawn(mute::peer(listener.address(), transfer));
    let (sender, mut sent) = soon(listener.accept()).await.into_sender();
    let shape = Shape {
        units: 64,
        segments: vec![(0, MIB)],
    };
    let deadline = clock.now() + Duration::from_secs(1);
    sender.open(shape.open(transfer, deadline)).unwrap();
    let memory: Arc<[u8]> = vec![1; MIB as usize].into();
    for unit in (0..shape.units).map(UnitIndex) {
        let bytes = SharedBytes::from_owner(Arc::clone(&memory));
        let segment = SegmentPayload { bytes, checksum: 0 };
        sender.publish(transfer, unit, vec![segment]).unwrap();
    }
    let accepted = soon(sent.next()).await.unwrap();
    assert!(matches!(accepted, Sent::Accepted(_)), "{accepted:?}");
    let failed = soon(sent.next()).await.unwrap();
    assert!(
        matches!(&failed, Sent::Failed(_, reason) if reason.code() == Code::Deadline),
        "{failed:?}"
    );
    // The test's own, and what the chunk holds that is stuck in the socket.
    let owners = Arc::strong_count(&memory);
    assert!(owners <= 2, "{owners} owners of the payload are left");
    let written: Bytes = sender.stats().wire_sent.into_iter().sum();
    assert!(written < Bytes::from_mib(2), "the kernel holds {written}");
    peer.abort();
}

#[tokio::test]
async fn a_unit_that_does_not_fit_its_plan_fails_its_transfer() {
    let mut pair = Pair::new(FAST).await;
    let shape = usual();
    pair.open(TransferId(1), &shape, Duration::from_secs(20))
        .await;
    pair.sender
        .publish(TransferId(1), UnitIndex(0), Vec::new())
        .unwrap();
    let reason = pair.sent_failure(TransferId(1)).await;
    assert_eq!(reason.code(), Code::Application);
    assert!(reason.text().contains("segments"), "{reason}");
    pair.received_failure(TransferId(1)).await;
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
