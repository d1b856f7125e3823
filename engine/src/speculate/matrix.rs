//! What every input does in every state of a request, as a table.

use super::*;

#[derive(Debug)]
struct Never;

impl Ending for Never {
    fn reached(&self, _: &[TokenId]) -> Option<FinishReason> {
        None
    }
}

const ANCHOR: AnchorInfo = AnchorInfo {
    residual_due: None,
    depth_limit: 8,
};

type Step = fn(&mut Speculation);

/// How each state is reached from a transferred request.
const STATES: [(&str, &[Step]); 9] = [
    ("loading", &[]),
    ("loading, first token", &[first]),
    ("anchor", &[anchor]),
    ("drafting", &[anchor, first, sample]),
    ("comparing drafts", &[anchor, first, sample, redraft]),
    ("computing", &[failed]),
    ("full", &[full]),
    ("full, drafts to verify", &[anchor, first, sample, full]),
    ("done", &[abort]),
];

const INPUTS: [(&str, Step); 8] = [
    ("first token", first),
    ("anchor ready", anchor),
    ("redraft", redraft),
    ("full ready", full),
    ("failed", failed),
    ("sample", sample),
    ("preempted", preempted),
    ("abort", abort),
];

fn first(request: &mut Speculation) {
    request.first_token(1);
}

fn anchor(request: &mut Speculation) {
    request.anchor_ready(ANCHOR);
}

fn redraft(request: &mut Speculation) {
    request.redraft();
}

fn full(request: &mut Speculation) {
    request.full_ready();
}

fn failed(request: &mut Speculation) {
    request.failed();
}

fn sample(request: &mut Speculation) {
    request.evaluated(&[2]);
}

fn preempted(request: &mut Speculation) {
    request.preempted();
}

fn abort(request: &mut Speculation) {
    request.abort();
}

fn reach(steps: &[Step]) -> Speculation {
    let mut request = Speculation::transferred(10, 4, Box::new(Never));
    steps.iter().for_each(|step| step(&mut request));
    request
}

/// A state as the engine sees it: what the KV is, how much stands and is drafted, and what is to be done.
fn seen(request: &Speculation) -> String {
    let phase = match request.phase {
        Phase::Loading(None) => "loading",
        Phase::Loading(Some(_)) => "anchor",
        Phase::Computing => "computing",
        Phase::Full => "full",
        Phase::Done => "done",
    };
    let next = match request.next(Timestamp::ORIGIN, Duration::from_millis(1)) {
        Action::Wait => "wait",
        Action::Compute => "compute",
        Action::Draft { .. } => "draft",
        Action::Redraft { .. } => "compare",
        Action::Verify { .. } => "verify",
        Action::Decode { .. } => "decode",
        Action::Done => "nothing",
    };
    let (stand, drafted) = (request.committed, request.drafts().len());
    format!("{phase} {stand}+{drafted}: {next}")
}

#[test]
fn every_input_does_this_in_every_state() {
    let mut text = String::new();
    for (state, steps) in STATES {
        text += &format!("{state} ({})\n", seen(&reach(steps)));
        for (name, input) in INPUTS {
            let mut request = reach(steps);
            request.changes.clear();
            input(&mut request);
            let told = request.changes.len();
            text += &format!("    {name:14}{:22}{told} told\n", seen(&request));
        }
    }
    insta::assert_snapshot!(text);
}
