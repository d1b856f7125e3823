//! What an engine may say about a request in every state, as a table.

use lynx_proto::engine::v1::{
    Abort, AnchorReady, Attach, Forgotten, FullReady, Prefill, Progress, Release, Report, Role,
    Submit, WantGrant, WriteGrant,
};

use super::*;
use crate::pool::Access;
use crate::testing::{attach, make_pool, open_pool};

type Step = fn(&mut Rules);
type Said = fn() -> from_engine::Kind;

/// How each state of request 1 is reached.
const STATES: [(&str, &[Step]); 14] = [
    ("unknown", &[]),
    ("submitted", &[submit]),
    ("submitted, aborted", &[submit, abort]),
    ("expected: the agent's blocks", &[submit, expect]),
    ("expected, aborted", &[submit, expect, abort]),
    ("announced: the engine's", &[submit, expect, announce]),
    ("asked for", &[submit, expect, announce, want]),
    ("granted", &[submit, expect, announce, want, grant]),
    (
        "full, a grant crossing",
        &[submit, expect, announce, want, full],
    ),
    ("prefill asked", &[prefill]),
    ("prefill started", &[prefill, start]),
    ("prefill done", &[prefill, start, publish, done]),
    (
        "prefill finished, not released",
        &[prefill, start, publish, done, finish],
    ),
    ("prefill released, not finished", &[prefill, start, release]),
];

const MESSAGES: [(&str, Said); 12] = [
    ("Attach", || from_engine::Kind::Attach(Attach::default())),
    ("PrefillStarted", started),
    ("Published", published),
    ("PrefillDone", prefill_done),
    ("Expect", expected),
    ("WriteGrant", granted),
    ("Progress", || {
        from_engine::Kind::Progress(Progress {
            request: 1,
            ..Progress::default()
        })
    }),
    ("Finished", finished),
    ("Refused", || {
        from_engine::Kind::Refused(Refused {
            request: 1,
            ..Refused::default()
        })
    }),
    ("Report", || from_engine::Kind::Report(Report::default())),
    ("CachedBlocks", || {
        from_engine::Kind::CachedBlocks(CachedBlocks::default())
    }),
    ("Forgotten", || from_engine::Kind::Forgotten(Forgotten {})),
];

fn submit(rules: &mut Rules) {
    rules.said(&from_agent::Kind::Submit(Submit {
        request: 1,
        transfer: true,
        ..Submit::default()
    }));
}

fn abort(rules: &mut Rules) {
    rules.said(&from_agent::Kind::Abort(Abort { request: 1 }));
}

fn announce(rules: &mut Rules) {
    rules.said(&from_agent::Kind::AnchorReady(AnchorReady {
        request: 1,
        ..AnchorReady::default()
    }));
}

fn want(rules: &mut Rules) {
    rules.said(&from_agent::Kind::WantGrant(WantGrant { request: 1 }));
}

fn full(rules: &mut Rules) {
    rules.said(&from_agent::Kind::FullReady(FullReady {
        request: 1,
        exact: true,
    }));
}

fn prefill(rules: &mut Rules) {
    rules.said(&from_agent::Kind::Prefill(Prefill {
        request: 1,
        tokens: vec![0; 64],
        ..Prefill::default()
    }));
}

fn release(rules: &mut Rules) {
    rules.said(&from_agent::Kind::Release(Release { request: 1 }));
}

fn hear(rules: &mut Rules, kind: from_engine::Kind) {
    drop(rules.heard(kind).unwrap());
}

fn expected() -> from_engine::Kind {
    from_engine::Kind::Expect(Expect {
        request: 1,
        tokens: vec![0; 64],
        blocks: vec![3],
        ..Expect::default()
    })
}

fn expect(rules: &mut Rules) {
    hear(rules, expected());
}

fn granted() -> from_engine::Kind {
    from_engine::Kind::WriteGrant(WriteGrant { request: 1 })
}

fn grant(rules: &mut Rules) {
    hear(rules, granted());
}

fn started() -> from_engine::Kind {
    from_engine::Kind::PrefillStarted(PrefillStarted {
        request: 1,
        blocks: vec![5],
        cached_tokens: 0,
        start_unix_ns: 0,
    })
}

fn start(rules: &mut Rules) {
    hear(rules, started());
}

fn published() -> from_engine::Kind {
    from_engine::Kind::Published(Published {
        request: 1,
        layer: 0,
        first_token: 0,
        end_token: 64,
        ..Published::default()
    })
}

/// Every layer.
fn publish(rules: &mut Rules) {
    let layers = u32::try_from(rules.pool.layout().shape().layers).unwrap();
    for layer in 0..layers {
        let mut kind = published();
        if let from_engine::Kind::Published(published) = &mut kind {
            published.layer = layer;
        }
        hear(rules, kind);
    }
}

fn prefill_done() -> from_engine::Kind {
    from_engine::Kind::PrefillDone(PrefillDone {
        request: 1,
        first_token: 5,
        logprobs: None,
    })
}

fn done(rules: &mut Rules) {
    hear(rules, prefill_done());
}

fn finished() -> from_engine::Kind {
    from_engine::Kind::Finished(Finished {
        request: 1,
        ..Finished::default()
    })
}

fn finish(rules: &mut Rules) {
    hear(rules, finished());
}

/// What becomes of a message: passed on, of no more interest, or the end of the session and why.
fn answer(heard: Result<Option<Message>, Broken>) -> String {
    match heard {
        Ok(Some(_)) => "passed on".to_owned(),
        Ok(None) => "dropped".to_owned(),
        Err(Broken::OutOfTurn { why, .. }) => format!("broken: {why}"),
        Err(Broken::Unknown { .. }) => "broken: no such request".to_owned(),
        Err(Broken::Tokens { .. }) => "broken: tokens out of order".to_owned(),
        Err(other) => format!("broken: {other}"),
    }
}

#[test]
fn every_message_is_answered_so_in_every_state() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(Role::Decode, 8);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    let mut text = String::new();
    for (state, steps) in STATES {
        text += state;
        text.push('\n');
        for (name, message) in MESSAGES {
            let mut rules = Rules::new(Arc::clone(&pool), attach.context_tokens, false);
            steps.iter().for_each(|step| step(&mut rules));
            text += &format!("    {name:16}{}\n", answer(rules.heard(message())));
        }
    }
    insta::assert_snapshot!(text);
}
