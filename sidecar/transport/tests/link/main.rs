//! Whole links: two sides, real sockets, an emulated link between them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test's helpers fail as tests do"
)]

mod mute;
mod pair;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::limits::SILENCE_LIMIT;
use lynx_protocol::receiver::ReceiverConfig;
use lynx_protocol::sender::Event as Sent;
use lynx_protocol::{Code, CreditBook};
use lynx_transport::emulate::Direction;
use lynx_transport::{
    Clock, DialError, Dialler, LinkConfig, ListenError, Listener, PeerInfo, ReceiverEvent,
    SegmentPayload, SharedBytes,
};
use lynx_units::{BitRate, Bytes, Priority, SegmentIndex, TransferId, UnitIndex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use pair::{Pair, Shape, config, payload, soon};

const FAST: BitRate = BitRate::from_megabits_per_second(1000);
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// A head, an anchor step, two residual steps and a tail.
fn usual() -> Shape {
    Shape {
        units: 6,
        segments: vec![
            (0, 3 * KIB),
            (0, 200 * KIB),
            (1, 100 * KIB),
            (2, 0),
            (3, 333_333),
        ],
    }
}

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

fn is_segment(event: &ReceiverEvent, of: TransferId, index: u16) -> bool {
    matches!(event, ReceiverEvent::SegmentComplete { transfer, segment, .. }
        if *transfer == of && *segment == SegmentIndex(index))
}

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

#[tokio::test]
async fn strangers_and_halves_of_links_do_a_listener_no_harm() {
    let clock = Clock::start();
    let mut listener = Listener::bind(pair::LOOPBACK, config(clock, "prefill")).unwrap();
    let address = listener.address();
    let mut stranger = TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _half = mute::connect(address, Priority::Anchor).await;
    let _silent = TcpStream::connect(address).await.unwrap();
    // Two that dial at once get a link each.
    let mut first = Dialler::new(address, config(clock, "one"));
    let mut second = Dialler::new(address, config(clock, "two"));
    let patience = Duration::from_secs(10);
    let accept_two = async { [listener.accept().await, listener.accept().await] };
    let (accepted, one, two) = tokio::join!(
        accept_two,
        first.connect(patience),
        second.connect(patience)
    );
    assert_eq!(one.unwrap().peer().name(), "prefill");
    assert_eq!(two.unwrap().peer().name(), "prefill");
    let mut names = accepted.map(|link| link.peer().name().to_owned());
    names.sort();
    assert_eq!(names, ["one", "two"]);
    // The stranger was hung up on.
    let mut rest = Vec::new();
    soon(stranger.read_to_end(&mut rest)).await.ok();
    assert!(rest.is_empty());
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
    let mut listener = Listener::bind(pair::LOOPBACK, config(clock, "prefill")).unwrap();
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

#[tokio::test]
async fn a_peer_that_does_not_fit_is_refused_with_what_differs() {
    let clock = Clock::start();
    let prefill = PeerInfo::new("prefill")
        .with("codec", "1")
        .with("model", "a");
    let decode = PeerInfo::new("decode")
        .with("codec", "2")
        .with("model", "a");
    let mut listener =
        Listener::bind(pair::LOOPBACK, LinkConfig::new(clock, prefill).unwrap()).unwrap();
    let mut dialler = Dialler::new(listener.address(), LinkConfig::new(clock, decode).unwrap());
    let error = tokio::select! {
        _ = listener.accept() => panic!("a peer that does not fit was taken"),
        dialled = dialler.connect(Duration::from_secs(5)) => dialled.unwrap_err(),
    };
    assert!(matches!(error, DialError::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("codec is 1 on prefill and 2 on decode"),
        "{text}"
    );
    assert!(!text.contains("model"), "{text}");
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_named_after_the_patience() {
    let free = Listener::bind(pair::LOOPBACK, config(Clock::start(), "x")).unwrap();
    let address = free.address();
    drop(free);
    let mut dialler = Dialler::new(address, config(Clock::start(), "y"));
    let error = dialler
        .connect(Duration::from_millis(200))
        .await
        .unwrap_err();
    assert!(error.is_retryable());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(dialler.epoch().0 > 1);
}

#[tokio::test]
async fn a_port_in_use_is_refused_with_what_to_do() {
    let first = Listener::bind(pair::LOOPBACK, config(Clock::start(), "a")).unwrap();
    let address: SocketAddr = first.address();
    let error = Listener::bind(address, config(Clock::start(), "b")).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && text.contains("choose another"),
        "{text}"
    );
}

#[tokio::test]
async fn a_full_book_refuses_the_link_and_says_what_to_raise() {
    let pair = Pair::new(FAST).await;
    let mut listener = Listener::bind(pair::LOOPBACK, config(pair.clock, "p")).unwrap();
    let mut dialler = Dialler::new(listener.address(), config(pair.clock, "d"));
    let (_accepted, dialled) =
        tokio::join!(listener.accept(), dialler.connect(Duration::from_secs(5)));
    let book = CreditBook::new(Bytes::from_mib(8));
    let error = dialled
        .unwrap()
        .into_receiver(ReceiverConfig::default(), &book)
        .unwrap_err();
    assert!(error.to_string().contains("raise the budget"), "{error}");
}
