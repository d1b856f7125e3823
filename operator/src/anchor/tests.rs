use super::*;
use crate::streams::window::Drafts;

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

fn link(megabits: u64) -> LinkSeen {
    LinkSeen {
        class: "",
        up: true,
        transport: "tcp".into(),
        rate: BitRate::from_megabits_per_second(megabits),
        error: String::new(),
    }
}

fn at(tick: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(2 * tick))
}

fn run(controller: &mut Controller, ticks: std::ops::Range<u64>, megabits: u64) {
    for tick in ticks {
        controller.tick(&Window::default(), &[link(megabits)], at(tick));
    }
}

#[test]
fn before_a_link_is_measured_the_width_is_four_bits() {
    let controller = Controller::new(adaptive(), Limits::default());
    let decision = controller.decision();
    assert_eq!(decision.width, width(4));
    assert_eq!(decision.reason, Reason::NoLinkMeasured);
}

#[test]
fn the_first_measurement_is_believed_at_once() {
    let mut controller = Controller::new(adaptive(), Limits::default());
    run(&mut controller, 0..1, 50);
    assert_eq!(controller.decision().reason, Reason::BestForLink);
}

#[test]
fn a_throttled_link_moves_the_width_within_a_minute() {
    let mut controller = Controller::new(adaptive(), Limits::default());
    run(&mut controller, 0..30, 10_000);
    let fast = controller.decision().width;
    run(&mut controller, 30..60, 100);
    let slow = controller.decision().width;
    assert_ne!(fast, slow, "64 MiB take 54 ms, then 5.4 s");
}

#[test]
fn a_fixed_width_stays_whatever_the_link_does() {
    let wanted = Wanted {
        mode: Mode::Fixed(width(3)),
        ..adaptive()
    };
    let mut controller = Controller::new(wanted, Limits::default());
    run(&mut controller, 0..50, 10);
    run(&mut controller, 50..100, 100_000);
    let decision = controller.decision();
    assert_eq!((decision.width, decision.reason), (width(3), Reason::Fixed));
}

#[test]
fn new_bounds_hold_at_once() {
    let mut controller = Controller::new(adaptive(), Limits::default());
    run(&mut controller, 0..50, 100);
    let narrow = Bounds::new(width(2), width(2)).unwrap();
    controller.set_wanted(Wanted {
        mode: Mode::Adaptive(narrow),
        ..adaptive()
    });
    assert_eq!(controller.decision().width, width(2));
}

#[test]
fn the_width_keeps_to_the_bounds_on_any_trace_of_rates() {
    bolero::check!()
        .with_type::<Vec<u32>>()
        .for_each(|rates: &Vec<u32>| {
            let mut controller = Controller::new(adaptive(), Limits::default());
            for (tick, rate) in (0u64..).zip(rates) {
                let mut seen = link(1);
                seen.rate = BitRate::from_bits_per_second(u64::from(*rate) * 64);
                controller.tick(&Window::default(), &[seen], at(tick));
                let now = controller.decision().width;
                assert!((width(2)..=width(6)).contains(&now));
            }
        });
}

#[test]
fn links_that_are_down_or_of_another_class_do_not_decide() {
    let mut down = link(1);
    down.up = false;
    let mut cross = link(10);
    cross.class = "cross";
    let links = [down, cross, link(5_000)];
    assert_eq!(
        median_rate(&links, ""),
        Some(BitRate::from_megabits_per_second(5_000))
    );
    let mut controller = Controller::new(adaptive(), Limits::default());
    controller.tick(&Window::default(), &links, at(0));
    assert_eq!(controller.decisions().count(), 2);
    assert_eq!(
        controller.decision().rate,
        BitRate::from_megabits_per_second(10),
        "the slowest class stands for the deployment"
    );
}

#[test]
fn what_was_accepted_is_counted_and_learnt() {
    let mut controller = Controller::new(adaptive(), Limits::default());
    let mut window = Window::default();
    let drafts = Drafts {
        drafts: 10,
        drafted: 320,
        accepted: 80,
    };
    window.drafts.insert(32, drafts);
    controller.tick(&window, &[link(100)], at(0));
    assert_eq!(controller.accepted_share(), Some(0.25));
    let rate = controller.acceptance.rate(width(4), at(0));
    assert!(rate < Prior::UNIFORM.rate(width(4)), "{rate}");
}
