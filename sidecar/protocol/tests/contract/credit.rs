//! What the receiver grants.

use super::*;

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
