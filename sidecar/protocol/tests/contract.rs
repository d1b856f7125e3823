//! What the two machines promise to a driver, one promise at a time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::limits::{MAX_LIFETIME, MAX_TRANSFERS};
use lynx_protocol::receiver::{self, AcceptError, Discard, Receiver, ReceiverConfig};
use lynx_protocol::sender::{
    self, OpenError, OpenTransfer, PublishError, Segment, Sender, Transmit,
};
use lynx_protocol::wire::{Ack, ChunkHeader, Credit, Frame, Open, Packet};
use lynx_protocol::{Code, CreditBook, Extent, Reason, TransferPlan, handshake};
use lynx_units::{Bytes, Epoch, Priority, SegmentIndex, Timestamp, TransferId, UnitIndex};

const EPOCH: Epoch = Epoch(5);
const NAME: TransferId = TransferId(1);
const BOUND: u32 = 100_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

/// Two units of an anchor segment and a residual one.
fn plan() -> Arc<TransferPlan> {
    Arc::new(TransferPlan::new(2, &[0, 1], |_, _| BOUND).unwrap())
}

fn open(transfer: u64) -> OpenTransfer {
    OpenTransfer {
        transfer: TransferId(transfer),
        descriptor: Cow::Borrowed(b"plan"),
        plan: plan(),
        deadline: at(10_000),
    }
}

fn packet(frame: Frame<'static>) -> Packet<'static> {
    Packet {
        epoch: EPOCH,
        frame,
    }
}

fn segments(len: u32) -> [Segment; 2] {
    [Segment { len, checksum: 7 }; 2]
}

fn credit(bytes: u64) -> Packet<'static> {
    packet(Frame::Credit(Credit {
        limit: [Bytes::new(bytes); 2],
    }))
}

fn book() -> Arc<CreditBook> {
    CreditBook::new(Bytes::from_mib(64))
}

fn config() -> ReceiverConfig {
    ReceiverConfig {
        window: [Bytes::from_mib(1); 2],
    }
}

/// A receiver with one accepted transfer, whose credit has been announced.
fn receiver(book: &Arc<CreditBook>) -> Receiver {
    let mut receiver = Receiver::new(EPOCH, config(), book, at(0)).unwrap();
    offer(&mut receiver, NAME);
    receiver.accept(NAME, plan(), at(0)).unwrap();
    say(&mut receiver, at(0));
    receiver
}

fn offer(receiver: &mut Receiver, transfer: TransferId) {
    let open = Open {
        transfer,
        remaining: Duration::from_secs(10),
        descriptor: Cow::Borrowed(b"plan"),
    };
    receiver.handle_frame(Priority::Anchor, &packet(Frame::Open(open)), at(0));
}

/// Everything that a receiver has to say.
fn say(receiver: &mut Receiver, now: Timestamp) -> Vec<Frame<'static>> {
    std::iter::from_fn(|| receiver.poll_transmit(Priority::Anchor, now))
        .map(|packet| packet.frame)
        .collect()
}

fn events(receiver: &mut Receiver) -> Vec<receiver::Event> {
    std::iter::from_fn(|| receiver.poll_event()).collect()
}

/// Everything that a sender wants to write to a connection.
fn writes(sender: &mut Sender, on: Priority) -> Vec<Transmit> {
    std::iter::from_fn(|| sender.poll_transmit(on, at(0))).collect()
}

fn chunks(sender: &mut Sender, on: Priority) -> Vec<ChunkHeader> {
    writes(sender, on)
        .into_iter()
        .filter_map(|transmit| match transmit {
            Transmit::Chunk(header) => Some(header),
            Transmit::Frame(_) => None,
        })
        .collect()
}

fn chunk(segment: u16, offset: u32, len: u32) -> ChunkHeader {
    ChunkHeader {
        epoch: EPOCH,
        extent: Extent {
            transfer: NAME,
            unit: UnitIndex(0),
            segment: SegmentIndex(segment),
            offset,
            len,
        },
        segment_len: BOUND,
        segment_checksum: 7,
        payload_crc: 0,
    }
}

/// The frame that failed a transfer, and its code.
fn failure(frames: &[Frame<'_>]) -> Option<Code> {
    frames.iter().find_map(|frame| match frame {
        Frame::Failed(NAME, reason) => Some(reason.code()),
        _ => None,
    })
}

#[test]
fn nothing_is_sent_before_the_offer_is_accepted_and_credit_is_granted() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.open(open(1), at(0)).unwrap();
    sender.publish(NAME, UnitIndex(0), &segments(10)).unwrap();
    sender.handle_frame(Priority::Anchor, &credit(5), at(0));
    assert_eq!(chunks(&mut sender, Priority::Anchor), []);
    sender.handle_frame(Priority::Anchor, &packet(Frame::Accept(NAME)), at(0));
    assert_eq!(sender.poll_event(), Some(sender::Event::Accepted(NAME)));
    assert_eq!(chunks(&mut sender, Priority::Anchor), []);
    sender.handle_frame(Priority::Anchor, &credit(10), at(0));
    assert_eq!(chunks(&mut sender, Priority::Anchor).len(), 1);
}

#[test]
fn a_residual_waits_for_every_anchor_and_never_exceeds_the_window() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.handle_frame(Priority::Anchor, &credit(1 << 30), at(0));
    for transfer in [1, 2] {
        sender.open(open(transfer), at(0)).unwrap();
        let accept = packet(Frame::Accept(TransferId(transfer)));
        sender.handle_frame(Priority::Anchor, &accept, at(0));
    }
    for unit in [0, 1].map(UnitIndex) {
        sender.publish(NAME, unit, &segments(BOUND)).unwrap();
        sender
            .publish(
                TransferId(2),
                unit,
                &[Segment {
                    len: 1,
                    checksum: 0,
                }; 2],
            )
            .unwrap();
    }
    assert_eq!(chunks(&mut sender, Priority::Residual), []);
    let anchors = chunks(&mut sender, Priority::Anchor);
    assert_eq!(anchors.len(), 2 * 7 + 2);
    // 200 002 bytes of anchors are in flight: more than the initial window.
    assert_eq!(chunks(&mut sender, Priority::Residual), []);
    let ack = Ack {
        received: [Bytes::new(200_002), Bytes::ZERO],
        clock: Duration::ZERO,
    };
    sender.handle_frame(Priority::Anchor, &packet(Frame::Ack(ack)), at(1));
    let residuals: Bytes = chunks(&mut sender, Priority::Residual)
        .iter()
        .map(|header| header.extent.bytes())
        .sum();
    assert!(residuals >= Bytes::from_kib(128) && residuals < Bytes::from_kib(128 + 16));
}

#[test]
fn a_sender_takes_no_command_that_the_receiver_would_refuse() {
    let mut sender = Sender::new(EPOCH, at(0));
    let late = OpenTransfer {
        deadline: at(0),
        ..open(1)
    };
    assert_eq!(sender.open(late, at(0)), Err(OpenError::Late(NAME)));
    let long = OpenTransfer {
        descriptor: Cow::Owned(vec![0; 1 << 17]),
        ..open(1)
    };
    assert!(matches!(
        sender.open(long, at(0)),
        Err(OpenError::Descriptor(..))
    ));
    assert_eq!(
        sender.publish(NAME, UnitIndex(0), &segments(1)),
        Err(PublishError::Unknown(NAME))
    );
    sender.open(open(1), at(0)).unwrap();
    assert_eq!(sender.open(open(1), at(0)), Err(OpenError::Reused(NAME)));
    let publish = |sender: &mut Sender, unit, segments: &[Segment]| {
        sender.publish(NAME, UnitIndex(unit), segments)
    };
    assert_eq!(
        publish(&mut sender, 2, &segments(1)),
        Err(PublishError::Unit(UnitIndex(2)))
    );
    assert_eq!(
        publish(&mut sender, 0, &segments(1)[..1]),
        Err(PublishError::Segments {
            given: 1,
            planned: 2
        })
    );
    assert_eq!(
        publish(&mut sender, 0, &segments(BOUND + 1)),
        Err(PublishError::Bound {
            len: BOUND + 1,
            bound: BOUND
        })
    );
    publish(&mut sender, 0, &segments(1)).unwrap();
    assert_eq!(
        publish(&mut sender, 0, &segments(1)),
        Err(PublishError::Twice(UnitIndex(0)))
    );
    sender.cancel(NAME, "enough");
    assert_eq!(sender.open(open(1), at(0)), Err(OpenError::Reused(NAME)));
    for transfer in 2..2 + MAX_TRANSFERS as u64 {
        sender.open(open(transfer), at(0)).unwrap();
    }
    assert_eq!(
        sender.open(open(9999), at(0)),
        Err(OpenError::TooMany(MAX_TRANSFERS))
    );
}

#[test]
fn a_deadline_ends_a_transfer_on_each_side_and_the_other_side_is_told() {
    let mut sender = Sender::new(EPOCH, at(0));
    let soon = OpenTransfer {
        deadline: at(100),
        ..open(1)
    };
    sender.open(soon, at(0)).unwrap();
    assert_eq!(sender.poll_timeout(), Some(at(100)));
    sender.handle_timeout(at(100));
    assert!(
        matches!(sender.poll_event(), Some(sender::Event::Failed(NAME, reason)) if reason.code() == Code::Deadline)
    );
    let told = writes(&mut sender, Priority::Anchor);
    assert!(matches!(
        told.last(),
        Some(Transmit::Frame(Packet {
            frame: Frame::Failed(..),
            ..
        }))
    ));

    let mut receiver = receiver(&book());
    let keep_alive = |receiver: &mut Receiver, now| {
        Priority::ALL
            .into_iter()
            .for_each(|on| receiver.handle_activity(on, now));
        receiver.handle_timeout(now);
    };
    (1..10).for_each(|second| keep_alive(&mut receiver, at(second * 1000)));
    assert_eq!(events(&mut receiver).len(), 1);
    keep_alive(&mut receiver, at(10_000));
    assert!(
        matches!(&events(&mut receiver)[..], [receiver::Event::Failed(NAME, reason)] if reason.code() == Code::Deadline)
    );
    assert_eq!(
        failure(&say(&mut receiver, at(10_000))),
        Some(Code::Deadline)
    );
}

#[test]
fn no_deadline_is_further_away_than_the_longest_life() {
    let mut sender = Sender::new(EPOCH, at(0));
    let for_ever = OpenTransfer {
        deadline: Timestamp::NEVER,
        ..open(1)
    };
    sender.open(for_ever, at(0)).unwrap();
    Priority::ALL
        .into_iter()
        .for_each(|on| sender.handle_activity(on, at(0) + MAX_LIFETIME));
    sender.handle_timeout(at(0) + MAX_LIFETIME);
    assert!(matches!(
        sender.poll_event(),
        Some(sender::Event::Failed(..))
    ));
}

#[test]
fn frames_and_chunks_of_another_epoch_are_dropped_and_counted() {
    let mut receiver = receiver(&book());
    let old = Packet {
        epoch: Epoch(4),
        frame: Frame::Cancel(NAME, Reason::new(Code::Application, "")),
    };
    receiver.handle_frame(Priority::Anchor, &old, at(1));
    let header = ChunkHeader {
        epoch: Epoch(4),
        ..chunk(0, 0, 10)
    };
    let placed = receiver.handle_chunk_header(Priority::Anchor, &header, at(1));
    assert_eq!(placed, Err(Discard::Stale));
    assert_eq!(receiver.stats().stale_frames, 2);
    assert_eq!(receiver.stats().received, [Bytes::ZERO; 2]);
    assert_eq!(events(&mut receiver).len(), 1, "only the offer");
}

#[test]
fn a_name_is_not_used_twice_in_an_epoch() {
    let mut receiver = receiver(&book());
    receiver.cancel(NAME, "enough", at(1));
    offer(&mut receiver, NAME);
    assert!(receiver.is_over());
    let ends = events(&mut receiver);
    assert!(
        matches!(ends.last(), Some(receiver::Event::Broken(reason)) if reason.code() == Code::Protocol)
    );
}

#[test]
fn a_late_chunk_of_an_ended_transfer_goes_nowhere_and_holds_no_memory() {
    let mut receiver = receiver(&book());
    let header = chunk(1, 0, 50_000);
    let placement = receiver
        .handle_chunk_header(Priority::Residual, &header, at(1))
        .unwrap();
    assert!(placement.first);
    receiver.cancel(NAME, "the client went away", at(1));
    receiver.handle_chunk_done(Priority::Residual, &header, true, at(2));
    let late = receiver.handle_chunk_header(Priority::Residual, &chunk(1, 50_000, 10), at(3));
    assert_eq!(late, Err(Discard::Unknown));
    assert_eq!(receiver.stats().late_chunks, 1);
    assert_eq!(receiver.stats().discarded, Bytes::new(50_010));
    let completed =
        |event: &receiver::Event| matches!(event, receiver::Event::SegmentComplete { .. });
    assert!(!events(&mut receiver).iter().any(completed));
}

#[test]
fn memory_of_transfers_that_ended_half_way_is_granted_again() {
    let mut receiver = Receiver::new(EPOCH, config(), &book(), at(0)).unwrap();
    for transfer in (0..30).map(TransferId) {
        offer(&mut receiver, transfer);
        receiver.accept(transfer, plan(), at(1)).unwrap();
        for on in Priority::ALL {
            let segment = u16::try_from(on.index()).unwrap();
            let mut header = chunk(segment, 0, 50_000);
            header.extent.transfer = transfer;
            say(&mut receiver, at(1));
            receiver.handle_chunk_header(on, &header, at(1)).unwrap();
            receiver.handle_chunk_done(on, &header, true, at(1));
        }
        receiver.cancel(transfer, "the client went away", at(1));
    }
    assert_eq!(receiver.stats().received, [Bytes::new(1_500_000); 2]);
}

#[test]
fn duplicates_are_tolerated_and_overlaps_end_the_transfer() {
    let mut receiver = receiver(&book());
    let first = chunk(0, 0, 20_000);
    receiver
        .handle_chunk_header(Priority::Anchor, &first, at(1))
        .unwrap();
    receiver.handle_chunk_done(Priority::Anchor, &first, true, at(1));
    let again = receiver.handle_chunk_header(Priority::Anchor, &first, at(1));
    assert_eq!(again, Err(Discard::Duplicate));
    assert_eq!(receiver.stats().duplicates, 1);
    let overlap = receiver.handle_chunk_header(Priority::Anchor, &chunk(0, 10_000, 20_000), at(1));
    assert_eq!(overlap, Err(Discard::Violation));
    assert_eq!(failure(&say(&mut receiver, at(1))), Some(Code::Protocol));
    assert!(!receiver.is_over(), "the link goes on");
}

#[test]
fn a_chunk_on_the_wrong_connection_or_before_the_answer_ends_its_transfer() {
    let mut wrong = receiver(&book());
    let placed = wrong.handle_chunk_header(Priority::Residual, &chunk(0, 0, 10), at(1));
    assert_eq!(placed, Err(Discard::Violation));
    assert_eq!(failure(&say(&mut wrong, at(1))), Some(Code::Protocol));

    let mut early = Receiver::new(EPOCH, config(), &book(), at(0)).unwrap();
    say(&mut early, at(0));
    offer(&mut early, NAME);
    let placed = early.handle_chunk_header(Priority::Anchor, &chunk(0, 0, 10), at(1));
    assert_eq!(placed, Err(Discard::Violation));
    assert_eq!(failure(&say(&mut early, at(1))), Some(Code::Protocol));
}

#[test]
fn a_corrupt_chunk_fails_its_transfer_by_name() {
    let mut receiver = receiver(&book());
    let header = chunk(0, 0, BOUND);
    receiver
        .handle_chunk_header(Priority::Anchor, &header, at(1))
        .unwrap();
    receiver.handle_chunk_done(Priority::Anchor, &header, false, at(1));
    assert_eq!(failure(&say(&mut receiver, at(1))), Some(Code::Corrupt));
    assert!(matches!(
        &events(&mut receiver)[1..],
        [receiver::Event::Failed(NAME, _)]
    ));
    assert_eq!(receiver.stats().corrupt, 1);
}

#[test]
fn a_sender_that_exceeds_its_credit_loses_the_link() {
    let mut receiver = receiver(&book());
    let mut header = chunk(0, 0, BOUND);
    for unit in 0..11 {
        header.extent.unit = UnitIndex(unit);
        if receiver
            .handle_chunk_header(Priority::Anchor, &header, at(1))
            .is_ok()
        {
            receiver.handle_chunk_done(Priority::Anchor, &header, true, at(1));
        }
    }
    assert!(receiver.is_over());
    assert!(matches!(
        events(&mut receiver).last(),
        Some(receiver::Event::Broken(_))
    ));
}

#[test]
fn a_receiver_that_acknowledges_what_was_not_sent_loses_the_link() {
    let mut sender = Sender::new(EPOCH, at(0));
    let ack = Ack {
        received: [Bytes::new(1); 2],
        clock: Duration::ZERO,
    };
    sender.handle_frame(Priority::Anchor, &packet(Frame::Ack(ack)), at(0));
    assert!(sender.is_over() && sender.poll_timeout().is_none());
    assert!(matches!(
        sender.poll_event(),
        Some(sender::Event::Broken(_))
    ));
    assert_eq!(sender.open(open(1), at(0)), Err(OpenError::Over));
}

#[test]
fn levels_complete_in_order_whatever_comes_first() {
    let mut receiver = receiver(&book());
    let mut deliver = |unit, segment, on| {
        let mut header = chunk(segment, 0, BOUND);
        header.extent.unit = UnitIndex(unit);
        receiver.handle_chunk_header(on, &header, at(1)).unwrap();
        receiver.handle_chunk_done(on, &header, true, at(1));
        receiver.release(on, Bytes::new(BOUND.into()), at(1));
        events(&mut receiver)
            .into_iter()
            .filter(|event| {
                !matches!(
                    event,
                    receiver::Event::SegmentComplete { .. } | receiver::Event::Offered { .. }
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(deliver(0, 1, Priority::Residual), []);
    assert_eq!(deliver(1, 1, Priority::Residual), []);
    assert_eq!(deliver(1, 0, Priority::Anchor), []);
    let level = |level| receiver::Event::LevelComplete {
        transfer: NAME,
        level,
    };
    assert_eq!(
        deliver(0, 0, Priority::Anchor),
        [level(0), level(1), receiver::Event::Complete(NAME)]
    );
    assert!(say(&mut receiver, at(1)).contains(&Frame::Done(NAME)));
}

#[test]
fn a_plan_whose_segments_never_fit_the_window_is_refused() {
    let mut receiver = Receiver::new(EPOCH, config(), &book(), at(0)).unwrap();
    offer(&mut receiver, NAME);
    let large = TransferPlan::new(1, &[0, 1], |_, _| (1 << 20) + 1).unwrap();
    let refused = receiver.accept(NAME, Arc::new(large), at(0));
    assert!(matches!(refused, Err(AcceptError::Window { .. })));
    receiver.reject(NAME, "too large", at(0));
    assert_eq!(
        receiver.accept(NAME, plan(), at(0)),
        Err(AcceptError::NotOffered(NAME))
    );
}

/// The residual limits that a receiver announces.
fn residual_limits(receiver: &mut Receiver, now: Timestamp) -> Vec<Bytes> {
    say(receiver, now)
        .into_iter()
        .filter_map(|frame| match frame {
            Frame::Credit(credit) => Some(credit.limit[1]),
            _ => None,
        })
        .collect()
}

/// Delivers 50 000 residual bytes.
fn deliver_residual(receiver: &mut Receiver, offset: u32, now: Timestamp) {
    let header = chunk(1, offset, 50_000);
    receiver
        .handle_chunk_header(Priority::Residual, &header, now)
        .unwrap();
    receiver.handle_chunk_done(Priority::Residual, &header, true, now);
}

#[test]
fn residual_credit_is_withheld_while_another_links_anchor_arrives_and_not_for_ever() {
    let book = book();
    let mut bulk = receiver(&book);
    let mut urgent = receiver(&book);
    let anchor = |receiver: &mut Receiver, ms, offset| {
        let header = chunk(0, offset, 10);
        receiver
            .handle_chunk_header(Priority::Anchor, &header, at(ms))
            .unwrap();
        receiver.handle_chunk_done(Priority::Anchor, &header, true, at(ms));
    };
    anchor(&mut urgent, 1, 0);
    deliver_residual(&mut bulk, 0, at(2));
    deliver_residual(&mut bulk, 50_000, at(2));
    assert_eq!(residual_limits(&mut bulk, at(2)), []);
    assert_eq!(bulk.poll_timeout(), Some(at(7)));
    // The anchor goes on for longer than anybody may be kept waiting.
    for ms in 3..=260 {
        anchor(&mut urgent, ms, 10 * u32::try_from(ms).unwrap());
        bulk.handle_timeout(at(ms));
    }
    assert_eq!(residual_limits(&mut bulk, at(260)).len(), 1);
    assert_eq!(bulk.stats().starved, 1);
    assert!(bulk.stats().withheld >= Duration::from_millis(250));

    let mut other = chunk(1, 0, BOUND);
    other.extent.unit = UnitIndex(1);
    bulk.handle_chunk_header(Priority::Residual, &other, at(261))
        .unwrap();
    bulk.handle_chunk_done(Priority::Residual, &other, true, at(261));
    assert_eq!(residual_limits(&mut bulk, at(261)), []);
    // Prefill pauses: the wire is better used.
    bulk.handle_timeout(at(311));
    assert_eq!(residual_limits(&mut bulk, at(311)).len(), 1);
}

#[test]
fn a_links_own_anchor_is_its_senders_affair() {
    let book = book();
    let mut receiver = receiver(&book);
    deliver_residual(&mut receiver, 0, at(1));
    deliver_residual(&mut receiver, 50_000, at(1));
    assert!(book.anchor_active(at(1)));
    assert_eq!(residual_limits(&mut receiver, at(1)).len(), 1);
}

#[test]
fn shutting_down_says_so_for_every_transfer_and_then_nothing() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.open(open(1), at(0)).unwrap();
    sender.open(open(2), at(0)).unwrap();
    sender.shut_down();
    let failed = writes(&mut sender, Priority::Anchor)
        .into_iter()
        .filter(|transmit| matches!(transmit, Transmit::Frame(Packet { frame: Frame::Failed(_, reason), .. }) if reason.code() == Code::Shutdown));
    assert_eq!(failed.count(), 2);
    assert!(sender.is_over() && writes(&mut sender, Priority::Residual).is_empty());
}

#[test]
fn a_hello_of_another_version_or_an_older_epoch_is_refused_with_what_differs() {
    let Packet {
        frame: Frame::Hello(mut hello),
        ..
    } = handshake::hello(EPOCH, Priority::Anchor, 9, b"info")
    else {
        panic!("a hello is a hello");
    };
    assert_eq!(handshake::check(&hello, EPOCH, None), Ok(()));
    assert_eq!(handshake::check(&hello, EPOCH, Some(EPOCH)), Ok(()));
    let old = handshake::check(&hello, Epoch(4), Some(EPOCH)).unwrap_err();
    assert!(
        old.text().contains("epoch 4") && old.text().contains("epoch 5"),
        "{old}"
    );
    hello.version = 9;
    let other = handshake::check(&hello, EPOCH, None).unwrap_err();
    assert!(other.text().contains("version 1, the peer 9"), "{other}");
}
