//! The credit book and the withholding of credit against lists that are searched from end to end.

use alloc::vec::Vec;

use bolero::TypeGenerator;

use super::*;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Op {
    Take { mebibytes: u8 },
    Leave { seat: u8 },
    AnchorArrives { seat: u8 },
    NoAnchor { seat: u8 },
    BulkArrives { seat: u8 },
    Pass { millis: u8 },
}

/// A seat, what it took, and until when it counts as receiving an anchor, and residuals.
struct Sitting {
    seat: Seat,
    bytes: u64,
    until: Timestamp,
    bulk_until: Timestamp,
}

const BUDGET: Bytes = Bytes::from_mib(600);

/// The seat that a number means.
fn at(sitting: &[Sitting], number: u8) -> Option<usize> {
    usize::from(number).checked_rem(sitting.len())
}

#[test]
fn any_coming_and_going_gives_what_a_list_of_seats_gives() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let book = CreditBook::new(BUDGET);
        let mut sitting: Vec<Sitting> = Vec::new();
        let mut now = Timestamp::ORIGIN;
        for op in ops {
            match *op {
                Op::Take { mebibytes } => {
                    let bytes = Bytes::from_mib(u64::from(mebibytes));
                    let taken: u64 = sitting.iter().map(|one| one.bytes).sum();
                    let fits = taken + bytes.get() <= BUDGET.get() && sitting.len() < MAX_LINKS;
                    let seat = Seat::take(&book, bytes);
                    assert_eq!(seat.is_ok(), fits, "{seat:?}");
                    sitting.extend(seat.ok().map(|seat| Sitting {
                        seat,
                        bytes: bytes.get(),
                        until: Timestamp::ORIGIN,
                        bulk_until: Timestamp::ORIGIN,
                    }));
                }
                Op::Leave { seat } => {
                    if let Some(at) = at(&sitting, seat) {
                        sitting.swap_remove(at);
                    }
                }
                Op::AnchorArrives { seat } => {
                    if let Some(at) = at(&sitting, seat) {
                        sitting[at].seat.anchor_arrives(now);
                        sitting[at].until = now + CreditBook::QUIET;
                    }
                }
                Op::NoAnchor { seat } => {
                    if let Some(at) = at(&sitting, seat) {
                        sitting[at].seat.no_anchor();
                        sitting[at].until = Timestamp::ORIGIN;
                    }
                }
                Op::BulkArrives { seat } => {
                    if let Some(at) = at(&sitting, seat) {
                        sitting[at].seat.bulk_arrives(now);
                        sitting[at].bulk_until = now + CreditBook::QUIET;
                    }
                }
                Op::Pass { millis } => now += Duration::from_millis(u64::from(millis)),
            }
            let taken: u64 = sitting.iter().map(|one| one.bytes).sum();
            assert_eq!(book.left().get() + taken, book.budget().get());
            let active = |one: &Sitting| one.until > now;
            assert_eq!(book.anchor_active(now), sitting.iter().any(active));
            for (at, one) in sitting.iter().enumerate() {
                let others = || sitting.iter().enumerate().filter(|(other, _)| *other != at);
                assert_eq!(
                    one.seat.others_active(now),
                    others().any(|(_, other)| active(other))
                );
                let bulk = others().filter(|(_, other)| other.bulk_until > now);
                assert_eq!(one.seat.sharing(now), 1 + bulk.count() as u64);
            }
        }
    });
}

#[test]
fn withholding_keeps_to_its_limit_whatever_the_others_do() {
    bolero::check!()
        .with_type::<Vec<(u8, bool, bool)>>()
        .for_each(|steps| {
            let mut withhold = Withhold::default();
            let mut now = Timestamp::ORIGIN;
            // When credit was first kept back, and what came to an end before.
            let (mut since, mut total, mut starved) = (None, Duration::ZERO, 0);
            for &(millis, active, asks) in steps {
                now += Duration::from_millis(u64::from(millis));
                let kept = since.map_or(Duration::ZERO, |since| now - since);
                let limit = kept >= Withhold::LIMIT;
                if asks {
                    assert_eq!(withhold.may_grant(active, now), !active || limit);
                } else {
                    withhold.rest(now);
                }
                if !asks || !active || limit {
                    total += kept;
                    since = None;
                }
                if asks && active {
                    starved += u64::from(limit);
                    since = since.or(Some(now));
                }
                assert_eq!((withhold.total(), withhold.starved()), (total, starved));
                // Whoever waits is asked again, before long.
                let asked_again = withhold.recheck();
                assert_eq!(asked_again.is_some(), since.is_some());
                if asks {
                    assert!(asked_again.is_none_or(|at| at > now));
                }
            }
        });
}
