use lynx_policy::{Bounds, Fidelity, Objective};
use std::vec;

use super::*;

fn width(bits: u8) -> Width {
    Width::from_bits(bits).unwrap()
}

fn adaptive() -> Wanted {
    Wanted {
        mode: Mode::Adaptive(Bounds::new(width(2), width(6)).unwrap()),
        objective: Objective::Verified,
        fidelity: Fidelity::Exact,
        profile: false,
    }
}

fn link(class: &'static str, megabits: u64) -> Link {
    Link {
        class,
        rate: BitRate::from_megabits_per_second(megabits),
    }
}

fn at(tick: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(2 * tick))
}

fn run(controller: &mut Controller, ticks: core::ops::Range<u64>, megabits: u64) {
    for tick in ticks {
        let seen = Seen {
            links: &[link("", megabits)],
            ..Seen::default()
        };
        controller.tick(&seen, at(tick));
    }
}

#[test]
fn before_a_link_is_measured_the_width_is_four_bits() {
    let mut controller = Controller::new(adaptive());
    run(&mut controller, 0..5, 0);
    let decision = controller.decision();
    assert_eq!(decision.width, width(4));
    assert_eq!(decision.reason, Reason::NoLinkMeasured);
}

#[test]
fn the_first_measurement_is_believed_at_once() {
    let mut controller = Controller::new(adaptive());
    run(&mut controller, 0..1, 50);
    assert_eq!(controller.decision().reason, Reason::BestForLink);
}

#[test]
fn a_throttled_link_moves_the_width_within_a_minute() {
    let mut controller = Controller::new(adaptive());
    run(&mut controller, 0..40, 10_000);
    let fast = controller.decision().width;
    run(&mut controller, 40..70, 100);
    let slow = controller.decision().width;
    assert_ne!(fast, slow, "64 MiB take 54 ms, then 5.4 s");
}

#[test]
fn a_fixed_width_stays_whatever_the_link_does() {
    let wanted = Wanted {
        mode: Mode::Fixed(width(3)),
        ..adaptive()
    };
    let mut controller = Controller::new(wanted);
    run(&mut controller, 0..50, 10);
    run(&mut controller, 50..100, 100_000);
    let decision = controller.decision();
    assert_eq!((decision.width, decision.reason), (width(3), Reason::Fixed));
}

#[test]
fn new_bounds_hold_at_once() {
    let mut controller = Controller::new(adaptive());
    run(&mut controller, 0..50, 100);
    let narrow = Bounds::new(width(2), width(2)).unwrap();
    controller.set_wanted(Wanted {
        mode: Mode::Adaptive(narrow),
        ..adaptive()
    });
    assert_eq!(controller.decision().width, width(2));
    controller.set_wanted(adaptive());
    run(&mut controller, 50..51, 100);
    assert_ne!(controller.decision().width, width(2), "wider bounds too");
}

#[test]
fn the_last_leaders_width_is_gone_on_from() {
    let mut controller = Controller::new(adaptive());
    controller.resume(width(2), at(0));
    run(&mut controller, 0..29, 50);
    assert_eq!(controller.decision().width, width(2));
    run(&mut controller, 29..90, 50);
    assert!(controller.decision().width > width(2), "and left, in time");
}

#[test]
fn on_any_trace_the_width_keeps_to_its_bounds_and_a_minute_has_one_change() {
    bolero::check!()
        .with_type::<Vec<u32>>()
        .for_each(|rates: &Vec<u32>| {
            let mut controller = Controller::new(adaptive());
            let mut changes = vec![];
            for (tick, rate) in (0u64..).zip(rates) {
                let links = [Link {
                    class: "",
                    rate: BitRate::from_bits_per_second(u64::from(*rate) * 64),
                }];
                let first = controller.decision().reason == Reason::NoLinkMeasured;
                let seen = Seen {
                    links: &links,
                    ..Seen::default()
                };
                if controller.tick(&seen, at(tick)) && !first {
                    changes.push(tick);
                }
                let now = controller.decision().width;
                assert!((width(2)..=width(6)).contains(&now));
            }
            assert!(changes.windows(2).all(|pair| pair[1] - pair[0] >= 30));
        });
}

#[test]
fn the_slowest_class_stands_for_the_deployment() {
    let links = [link("cross", 10), link("", 5_000)];
    let mut controller = Controller::new(adaptive());
    let seen = Seen {
        links: &links,
        ..Seen::default()
    };
    controller.tick(&seen, at(0));
    assert_eq!(controller.decisions().count(), 2);
    assert_eq!(
        controller.decision().rate,
        BitRate::from_megabits_per_second(10)
    );
}

#[test]
fn one_bad_link_of_many_does_not_decide() {
    let links = [link("", 1), link("", 5_000), link("", 4_000)];
    let median = BitRate::from_megabits_per_second(4_000);
    assert_eq!(median_rate(&links, ""), Some(median));
}

#[test]
fn what_was_accepted_is_counted_and_learnt() {
    let mut controller = Controller::new(adaptive());
    let drafts = Drafts {
        drafts: 10,
        drafted: 320,
        accepted: 80,
    };
    let seen = Seen {
        links: &[link("", 100)],
        drafts: &[(width(4), drafts)],
        ..Seen::default()
    };
    controller.tick(&seen, at(0));
    assert_eq!(controller.accepted_share(), Some(0.25));
    let rate = controller.acceptance.rate(width(4), at(0));
    assert!(rate < Prior::UNIFORM.rate(width(4)), "{rate}");
}
