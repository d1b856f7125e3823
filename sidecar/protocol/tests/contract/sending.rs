//! What the sender promises.

use super::*;

#[test]
fn nothing_is_sent_before_the_offer_is_accepted_and_credit_is_granted() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.open(open(1), at(0)).unwrap();
    sender.publish(NAME, UnitIndex(0), &segments(10)).unwrap();
    sender.handle_frame(Priority::Anchor, &grant(5), at(0));
    assert_eq!(chunks(&mut sender, Priority::Anchor), []);
    sender.handle_frame(Priority::Anchor, &packet(Frame::Accept(NAME)), at(0));
    assert_eq!(sender.poll_event(), Some(sender::Event::Accepted(NAME)));
    assert_eq!(chunks(&mut sender, Priority::Anchor), []);
    sender.handle_frame(Priority::Anchor, &grant(10), at(0));
    assert_eq!(chunks(&mut sender, Priority::Anchor).len(), 1);
}

#[test]
fn a_residual_waits_for_every_anchor_and_never_exceeds_the_window() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.handle_frame(Priority::Anchor, &grant(1 << 30), at(0));
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
        publish(&mut sender, 0, &[segments(1), segments(1)].concat()),
        Err(PublishError::Segments {
            given: 4,
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
    // A unit may come in pieces.
    assert_eq!(publish(&mut sender, 1, &segments(1)[..1]), Ok(0));
    assert_eq!(
        publish(&mut sender, 1, &[]),
        Err(PublishError::Segments {
            given: 0,
            planned: 1
        })
    );
    assert_eq!(publish(&mut sender, 1, &segments(1)[..1]), Ok(1));
    assert_eq!(
        publish(&mut sender, 1, &segments(1)[..1]),
        Err(PublishError::Twice(UnitIndex(1)))
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
fn nothing_of_a_transfer_is_sent_once_it_is_over() {
    let mut sender = Sender::new(EPOCH, at(0));
    sender.handle_frame(Priority::Anchor, &grant(1 << 30), at(0));
    sender.open(open(1), at(0)).unwrap();
    sender.handle_frame(Priority::Anchor, &packet(Frame::Accept(NAME)), at(0));
    for unit in [0, 1].map(UnitIndex) {
        sender.publish(NAME, unit, &segments(BOUND)).unwrap();
    }
    // In the midst of a segment.
    let begun = std::iter::from_fn(|| sender.poll_transmit(Priority::Anchor, at(0)))
        .find(|transmit| matches!(transmit, Transmit::Chunk(_)));
    assert!(begun.is_some());
    sender.cancel(NAME, "the client went away");
    for on in Priority::ALL {
        assert_eq!(chunks(&mut sender, on), []);
    }
}
