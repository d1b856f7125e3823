//! A run's figures, from hand-written events.

use super::*;

fn token(index: u32, t: f64, provisional: bool) -> Event {
    Event::Token {
        index,
        token: index,
        text: format!(" t{index}"),
        t,
        provisional,
    }
}

/// Three drafts of which two stand; the correction and one decoded token follow.
fn a_drafted_run() -> Vec<Event> {
    vec![
        Event::Sent {
            priority: Class::Anchor,
            bytes: 40,
            t: 0.1,
        },
        Event::Sent {
            priority: Class::Anchor,
            bytes: 100,
            t: 0.2,
        },
        Event::Sent {
            priority: Class::Residual,
            bytes: 250,
            t: 0.9,
        },
        token(0, 0.3, false),
        Event::Draft {
            index: 1,
            start: 0.3,
            end: 0.4,
        },
        token(1, 0.4, true),
        Event::Draft {
            index: 2,
            start: 0.4,
            end: 0.5,
        },
        token(2, 0.5, true),
        Event::Draft {
            index: 3,
            start: 0.5,
            end: 0.6,
        },
        token(3, 0.6, true),
        Event::Verify {
            tokens: 3,
            accepted: 2,
            start: 1.0,
            end: 1.2,
        },
        Event::Retracted {
            from_index: 3,
            t: 1.2,
        },
        token(1, 1.2, false),
        token(2, 1.2, false),
        token(3, 1.2, false),
        Event::Decode {
            index: 4,
            start: 1.2,
            end: 1.3,
        },
        token(4, 1.3, false),
        Event::Finished { t: 1.3 },
    ]
}

#[test]
fn figures_follow_from_the_events() {
    let figures = Figures::of(&a_drafted_run());
    assert_eq!(figures.wire_bytes, 350);
    assert_eq!(figures.anchor_bytes, 100);
    assert_eq!(figures.t_first_s, Some(0.3));
    assert_eq!(
        figures.t_second_s,
        Some(0.4),
        "provisional tokens count here"
    );
    assert_eq!(figures.t_verified_s(2), Some(1.2));
    assert_eq!(figures.t_verified_s(5), Some(1.3));
    assert_eq!(figures.t_verified_s(6), None);
    assert_eq!(figures.t_verified_s(0), None);
    assert_eq!((figures.drafted, figures.accepted), (3, 2));
    assert_eq!(figures.text(), " t0 t1 t2 t3 t4");
}

#[test]
fn the_order_of_the_events_does_not_matter() {
    let mut events = a_drafted_run();
    let forward = Figures::of(&events);
    events.reverse();
    assert_eq!(Figures::of(&events), forward);
}

#[test]
fn an_answer_with_a_hole_ends_before_it() {
    let events = [token(0, 0.1, false), token(2, 0.2, false)];
    let figures = Figures::of(&events);
    assert_eq!(figures.tokens.len(), 1);
    assert_eq!(figures.t_verified_s(2), None);
}

#[test]
fn a_run_without_events_has_no_figures() {
    let figures = Figures::of(&[]);
    assert_eq!(figures.wire_bytes, 0);
    assert_eq!(figures.t_first_s, None);
    assert_eq!(figures.text(), "");
}

#[test]
fn the_first_difference_is_named() {
    let long = Figures::of(&[token(0, 0.1, false), token(1, 0.2, false)]);
    let short = Figures::of(&[token(0, 0.9, false)]);
    assert_eq!(long.first_difference(&short), Some(1));
    assert_eq!(long.first_difference(&long), None);
    assert_eq!(long.first_difference(&long), None, "times do not matter");
    assert!(long.first_difference(&short).is_some());
}

#[test]
fn a_run_survives_json() {
    let run = RunResult {
        method: Method::LynxInt8,
        scenario: Scenario::Cold,
        prompt: "needle-1".to_owned(),
        prompt_tokens: 512,
        link_bps: 1_000_000,
        memory_bytes: [None; 2],
        answer: Vec::new(),
        events: a_drafted_run(),
    };
    let json = serde_json::to_string(&run).unwrap();
    assert!(json.contains(r#""method":"lynx-int8""#), "{json}");
    assert!(json.contains(r#""event":"retracted","from_index":3"#));
    assert_eq!(serde_json::from_str::<RunResult>(&json).unwrap(), run);
    assert!((run.end_s() - 1.3).abs() < 1e-12);
}

#[test]
fn a_methods_id_is_its_json_name() {
    for method in Method::ALL {
        let json = serde_json::to_string(&method).unwrap();
        assert_eq!(json, format!("\"{}\"", method.id()));
    }
    for scenario in [Scenario::Warm, Scenario::Cold] {
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(json, format!("\"{}\"", scenario.id()));
    }
}
