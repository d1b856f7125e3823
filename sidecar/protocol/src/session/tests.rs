use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use lynx_units::TransferId;

use super::*;

const EPOCH: Epoch = Epoch(5);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_millis(millis))
}

fn done(transfer: u64) -> Frame<'static> {
    Frame::Done(TransferId(transfer))
}

/// Sessions in every state that one can be in, each with one frame waiting and no heartbeat due.
fn states() -> [(&'static str, Session); 3] {
    let session = |change: fn(&mut Session)| {
        let mut session = Session::new(EPOCH, at(0));
        while Priority::ALL
            .into_iter()
            .any(|on| session.poll(on, at(0)).is_some())
        {}
        assert!(session.say(done(1)));
        change(&mut session);
        session
    };
    [
        ("alive", session(|_| {})),
        ("closing", session(Session::close)),
        ("broken", session(Session::break_off)),
    ]
}

/// What a session does with something, as a word or two.
type Input = (&'static str, fn(&mut Session) -> &'static str);

fn said(frame: Option<Frame<'static>>) -> &'static str {
    match frame {
        None => "nothing",
        Some(Frame::Heartbeat(_)) => "heartbeat",
        Some(_) => "the frame",
    }
}

const INPUTS: [Input; 6] = [
    ("frame of this epoch", |session| {
        match session.admits(Priority::Anchor, EPOCH, at(9)) {
            true => "looked at",
            false => "dropped",
        }
    }),
    ("frame of another", |session| {
        let before = session.stale_frames();
        let admitted = session.admits(Priority::Anchor, Epoch(4), at(9));
        match (admitted, session.stale_frames() - before) {
            (false, 1) => "counted",
            (false, _) => "dropped",
            (true, _) => "looked at",
        }
    }),
    ("anchor can write", |session| {
        said(session.poll(Priority::Anchor, at(9)))
    }),
    ("residual can write", |session| {
        said(session.poll(Priority::Residual, at(9)))
    }),
    ("half a second", |session| {
        match session.on_timeout(at(500)) {
            None => said(session.poll(Priority::Residual, at(500))),
            Some(_) => "dead",
        }
    }),
    ("two seconds' silence", |session| {
        match session.on_timeout(at(2000)) {
            None => "alive",
            Some(_) => "dead",
        }
    }),
];

#[test]
fn a_session_does_these_things_and_no_others() {
    let mut text = String::new();
    write!(text, "{:22}", "").unwrap();
    for (state, _) in states() {
        write!(text, "{state:11}").unwrap();
    }
    for (name, input) in INPUTS {
        write!(text, "\n{name:22}").unwrap();
        for (_, mut session) in states() {
            write!(text, "{:11}", input(&mut session)).unwrap();
        }
    }
    let text: Vec<&str> = text.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(text.join("\n"), @r"
                          alive      closing    broken
    frame of this epoch   looked at  dropped    dropped
    frame of another      counted    dropped    dropped
    anchor can write      the frame  the frame  nothing
    residual can write    nothing    nothing    nothing
    half a second         heartbeat  nothing    nothing
    two seconds' silence  dead       dead       dead
    ");
}

#[test]
fn frames_are_said_in_order_on_the_anchors_connection_and_pile_up_to_the_limit_only() {
    bolero::check!()
        .with_type::<Vec<(bool, u16)>>()
        .for_each(|ops| {
            let mut session = Session::new(EPOCH, at(0));
            for on in Priority::ALL {
                assert_eq!(said(session.poll(on, at(0))), "heartbeat");
            }
            let mut waiting = alloc::collections::VecDeque::new();
            let mut next = 0;
            for &(says, count) in ops {
                for _ in 0..count % 1024 {
                    if says {
                        waiting.push_back(done(next));
                        let fits = waiting.len() <= MAX_CONTROL_BACKLOG;
                        assert_eq!(session.say(done(next)), fits);
                        next += 1;
                    } else {
                        assert_eq!(session.poll(Priority::Residual, at(1)), None);
                        assert_eq!(session.poll(Priority::Anchor, at(1)), waiting.pop_front());
                    }
                }
            }
        });
}

#[test]
fn an_echo_counts_only_where_this_side_can_have_asked_for_it_lately() {
    let mut session = Session::new(EPOCH, at(0));
    let mut echo = |echo: u64, now| session.on_heartbeat(&Heartbeat { stamp: 0, echo }, now);
    let asked = stamp(at(10));
    assert_eq!(echo(asked, at(14)), Some(Duration::from_millis(4)));
    assert_eq!(echo(0, at(14)), None);
    assert_eq!(echo(asked, at(9)), None, "from the future");
    assert_eq!(echo(asked, at(10 + 2000)), None, "too old to be believed");
    assert_eq!(echo(u64::MAX, at(14)), None);
}
