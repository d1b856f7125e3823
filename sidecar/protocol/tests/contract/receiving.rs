//! What the receiver promises about frames and chunks.

use super::*;

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
