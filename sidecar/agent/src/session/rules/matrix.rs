//! What an engine may say about a request in every state, as a table.

use lynx_proto::engine::v1::{
    Abort, AnchorReady, Attach, Coded, Forget, Forgotten, FullReady, Prefill, Progress, Release,
    Report, Role, Submit, WantGrant, WriteGrant,
};

use super::*;
use crate::pool::Access;
use crate::testing::{attach, make_pool, open_pool};

type Step = fn(&mut Rules, u64);
type Said = fn(u64) -> from_engine::Kind;

/// How each state of a request that the agent began is reached.
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

/// And those of one that an engine with a server of its own began.
const OWN: [(&str, &[Step]); 9] = [
    ("unknown", &[]),
    ("unknown, told to forget", &[forget]),
    ("began while told to forget", &[forget, expect]),
    ("expected: the agent's blocks", &[expect]),
    ("expected, aborted", &[expect, abort]),
    ("announced: the engine's", &[expect, announce]),
    ("granted", &[expect, announce, want, grant]),
    ("full, a grant crossing", &[expect, announce, want, full]),
    ("finished", &[expect, finish]),
];

const MESSAGES: [(&str, Said); 13] = [
    ("Attach", |_| from_engine::Kind::Attach(Attach::default())),
    ("PrefillStarted", started),
    ("Published", published),
    ("PrefillDone", prefill_done),
    ("Expect", expected),
    ("WriteGrant", granted),
    ("Progress", |request| {
        from_engine::Kind::Progress(Progress {
            request,
            ..Progress::default()
        })
    }),
    ("Finished", finished),
    ("Refused", |request| {
        from_engine::Kind::Refused(Refused {
            request,
            ..Refused::default()
        })
    }),
    ("Report", |_| from_engine::Kind::Report(Report::default())),
    ("CachedBlocks", |_| {
        from_engine::Kind::CachedBlocks(CachedBlocks::default())
    }),
    ("Forgotten", |_| from_engine::Kind::Forgotten(Forgotten {})),
    ("Coded", |_| from_engine::Kind::Coded(Coded::default())),
];

fn submit(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::Submit(Submit {
        request,
        transfer: true,
        ..Submit::default()
    }));
}

fn forget(rules: &mut Rules, _: u64) {
    rules.said(&from_agent::Kind::Forget(Forget {}));
}

fn abort(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::Abort(Abort { request }));
}

fn announce(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::AnchorReady(AnchorReady {
        request,
        ..AnchorReady::default()
    }));
}

fn want(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::WantGrant(WantGrant { request }));
}

fn full(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::FullReady(FullReady {
        request,
        exact: true,
    }));
}

fn prefill(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::Prefill(Prefill {
        request,
        tokens: vec![0; 64],
        ..Prefill::default()
    }));
}

fn release(rules: &mut Rules, request: u64) {
    rules.said(&from_agent::Kind::Release(Release { request }));
}

fn hear(rules: &mut Rules, kind: from_engine::Kind) {
    drop(rules.heard(kind).unwrap());
}

fn expected(request: u64) -> from_engine::Kind {
    from_engine::Kind::Expect(Expect {
        request,
        tokens: vec![0; 64],
        blocks: vec![3],
        ..Expect::default()
    })
}

fn expect(rules: &mut Rules, request: u64) {
    hear(rules, expected(request));
}

fn granted(request: u64) -> from_engine::Kind {
    from_engine::Kind::WriteGrant(WriteGrant { request })
}

fn grant(rules: &mut Rules, request: u64) {
    hear(rules, granted(request));
}

fn started(request: u64) -> from_engine::Kind {
    from_engine::Kind::PrefillStarted(PrefillStarted {
        request,
        blocks: vec![5],
        cached_tokens: 0,
        start_unix_ns: 0,
    })
}

fn start(rules: &mut Rules, request: u64) {
    hear(rules, started(request));
}

fn published(request: u64) -> from_engine::Kind {
    from_engine::Kind::Published(Published {
        request,
        layer: 0,
        first_token: 0,
        end_token: 64,
        ..Published::default()
    })
}

/// Every layer.
fn publish(rules: &mut Rules, request: u64) {
    let layers = u32::try_from(rules.pool.layout().shape().layers).unwrap();
    for layer in 0..layers {
        let mut kind = published(request);
        if let from_engine::Kind::Published(published) = &mut kind {
            published.layer = layer;
        }
        hear(rules, kind);
    }
}

fn prefill_done(request: u64) -> from_engine::Kind {
    from_engine::Kind::PrefillDone(PrefillDone {
        request,
        first_token: 5,
        logprobs: None,
    })
}

fn done(rules: &mut Rules, request: u64) {
    hear(rules, prefill_done(request));
}

fn finished(request: u64) -> from_engine::Kind {
    from_engine::Kind::Finished(Finished {
        request,
        ..Finished::default()
    })
}

fn finish(rules: &mut Rules, request: u64) {
    hear(rules, finished(request));
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

/// What is answered in each of these states, where `request` is what is spoken of.
fn table(states: &[(&str, &[Step])], request: u64, own_front: bool) -> String {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(Role::Decode, 8);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    let mut text = String::new();
    for (state, steps) in states {
        text += state;
        text.push('\n');
        for (name, message) in MESSAGES {
            let mut rules = Rules::new(Arc::clone(&pool), attach.context_tokens, own_front);
            steps.iter().for_each(|step| step(&mut rules, request));
            let heard = rules.heard(message(request));
            text += &format!("    {name:16}{}\n", answer(heard));
        }
    }
    text
}

#[test]
fn every_message_is_answered_so_in_every_state() {
    insta::assert_snapshot!(table(&STATES, 1, false));
}

#[test]
fn every_message_about_a_request_that_the_engine_began_is_answered_so() {
    insta::assert_snapshot!(table(&OWN, ENGINES | 1, true));
}
