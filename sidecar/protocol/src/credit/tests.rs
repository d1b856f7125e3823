use alloc::vec::Vec;

use bolero::TypeGenerator;

use super::*;
use crate::limits::MIN_CHUNK;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Op {
    Send { bytes: u32 },
    Release { bytes: u32 },
    Raise { ahead: u32 },
    Announce { ahead: u32 },
}

#[test]
fn held_bytes_never_exceed_the_window_and_only_a_cheat_is_refused() {
    const SIZE: u64 = 1 << 20;
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut window = Window::new(Bytes::new(SIZE));
        let (mut limit, mut sent, mut released) = (0, 0, 0);
        for op in ops {
            match *op {
                Op::Send { bytes } => {
                    let bytes = u64::from(bytes % (1 << 19));
                    let allowed = sent + bytes <= limit;
                    assert_eq!(window.receive(Bytes::new(bytes)), allowed);
                    sent += if allowed { bytes } else { 0 };
                }
                Op::Release { bytes } => {
                    window.release(Bytes::new(u64::from(bytes)));
                    released = sent.min(released + u64::from(bytes));
                }
                Op::Raise { ahead } => {
                    let ahead = Bytes::new(u64::from(ahead));
                    let can = window.can_raise(ahead);
                    let before = window.can_raise(Bytes::ZERO);
                    window.raise(ahead);
                    assert!(!window.can_raise(ahead) && (can || !before));
                }
                Op::Announce { ahead } => {
                    if window.is_due(Bytes::new(u64::from(ahead))) {
                        let announced = window.announce().get();
                        assert!(announced > limit, "a credit frame that grants nothing");
                        limit = announced;
                    }
                }
            }
            assert!(
                limit <= released + SIZE,
                "more is granted than there is memory"
            );
        }
    });
}

#[test]
fn a_sender_that_cuts_by_the_rules_is_never_stuck() {
    bolero::check!()
        .with_type::<Vec<(u32, u32, u32)>>()
        .for_each(|segments| {
            let mut window = Window::new(Bytes::from_mib(1));
            let (mut limit, mut sent) = (0, 0);
            // How far it may run ahead changes as other links come and go.
            for &(len, chunk, ahead) in segments {
                let ahead = Bytes::new(u64::from(ahead % (1 << 21)));
                let len = u64::from(len % (1 << 20));
                let chunk = u64::from(MIN_CHUNK + chunk % (1 << 18));
                let mut rest = len;
                while rest > 0 {
                    window.raise(ahead);
                    if window.is_due(ahead) {
                        limit = window.announce().get();
                    }
                    let piece = rest.min(chunk).min(limit - sent);
                    assert!(
                        piece >= rest.min(u64::from(MIN_CHUNK)),
                        "stuck at {sent} of {limit}"
                    );
                    assert!(window.receive(Bytes::new(piece)));
                    sent += piece;
                    rest -= piece;
                }
                // The application holds no complete segment for ever.
                window.release(Bytes::new(len));
            }
        });
}

#[test]
fn a_link_takes_its_windows_out_of_the_budget_and_gives_them_back() {
    let book = CreditBook::new(Bytes::from_mib(10));
    let first = Seat::take(&book, Bytes::from_mib(6)).unwrap();
    let refused = Seat::take(&book, Bytes::from_mib(6)).unwrap_err();
    assert_eq!(
        refused,
        BookFull::Memory {
            wanted: Bytes::from_mib(6),
            left: Bytes::from_mib(4),
            budget: Bytes::from_mib(10),
        }
    );
    drop(first);
    assert_eq!(book.left(), Bytes::from_mib(10));
    let seats: Vec<_> = (0..MAX_LINKS)
        .map(|_| Seat::take(&book, Bytes::new(1)).unwrap())
        .collect();
    assert_eq!(
        Seat::take(&book, Bytes::new(1)).unwrap_err(),
        BookFull::Links
    );
    drop(seats);
    assert_eq!(book.left(), Bytes::from_mib(10));
}

#[test]
fn a_link_sees_the_anchors_of_others_until_they_are_quiet() {
    let book = CreditBook::new(Bytes::from_mib(10));
    let (mine, other) = (
        Seat::take(&book, Bytes::ZERO).unwrap(),
        Seat::take(&book, Bytes::ZERO).unwrap(),
    );
    assert!(!book.anchor_active(at(0)));
    mine.anchor_arrives(at(0));
    assert!(!mine.others_active(at(1)) && other.others_active(at(1)));
    assert!(book.anchor_active(at(49)) && !book.anchor_active(at(50)));
    mine.anchor_arrives(at(60));
    assert!(other.others_active(at(61)));
    mine.no_anchor();
    assert!(!other.others_active(at(61)));
    mine.anchor_arrives(at(70));
    drop(mine);
    assert!(!other.others_active(at(71)));
}

#[test]
fn a_link_knows_how_many_receive_residuals_beside_it_until_they_are_quiet() {
    let book = CreditBook::new(Bytes::from_mib(10));
    let seat = || Seat::take(&book, Bytes::ZERO).unwrap();
    let (mine, other, third) = (seat(), seat(), seat());
    assert_eq!(mine.sharing(at(0)), 1, "itself, also where nothing comes");
    mine.bulk_arrives(at(0));
    other.bulk_arrives(at(10));
    assert_eq!(
        [&mine, &other, &third].map(|seat| seat.sharing(at(20))),
        [2, 2, 3]
    );
    assert_eq!(
        third.sharing(at(55)),
        2,
        "the first has been quiet for 50 ms"
    );
    drop(other);
    assert_eq!(third.sharing(at(55)), 1);
}

#[test]
fn withholding_is_bounded_and_counted() {
    let mut withhold = Withhold::default();
    assert!(withhold.may_grant(false, at(0)));
    assert_eq!(withhold.recheck(), None);
    assert!(!withhold.may_grant(true, at(10)));
    assert_eq!(withhold.recheck(), Some(at(15)));
    assert!(!withhold.may_grant(true, at(259)));
    assert!(withhold.may_grant(true, at(260)));
    assert_eq!(withhold.starved(), 1);
    assert!(!withhold.may_grant(true, at(261)));
    assert!(withhold.may_grant(false, at(300)));
    assert_eq!(withhold.total(), Duration::from_millis(290));
    assert_eq!(withhold.recheck(), None);
}
