//! What every event does in every state of a request's blocks, as a table.

use super::*;

type Step = fn(&mut Blocks);

/// How each state is reached; what is to be done is done in between.
const STATES: [(&str, &[Step]); 9] = [
    ("the agent's", &[]),
    ("the agent's, merging", &[Blocks::handle_arrived]),
    (
        "the engine's",
        &[Blocks::handle_arrived, level, Blocks::handle_merged],
    ),
    (
        "the engine's, asked for",
        &[
            Blocks::handle_arrived,
            level,
            Blocks::handle_merged,
            Blocks::handle_arrived,
        ],
    ),
    (
        "granted, merging",
        &[
            Blocks::handle_arrived,
            level,
            Blocks::handle_merged,
            Blocks::handle_arrived,
            Blocks::handle_grant,
        ],
    ),
    (
        "complete, without a first token",
        &[
            Blocks::handle_arrived,
            Blocks::handle_complete,
            Blocks::handle_merged,
        ],
    ),
    (
        "complete, merging the last",
        &[
            Blocks::handle_first_token,
            Blocks::handle_arrived,
            Blocks::handle_complete,
        ],
    ),
    ("failed, merging", &[Blocks::handle_arrived, fail]),
    ("over", &[abort]),
];

const EVENTS: [(&str, Step); 9] = [
    ("segment", Blocks::handle_arrived),
    ("level", level),
    ("complete", Blocks::handle_complete),
    ("first token", Blocks::handle_first_token),
    ("grant", Blocks::handle_grant),
    ("merged", Blocks::handle_merged),
    ("failure", fail),
    ("abort", abort),
    ("engine gone", Blocks::forget),
];

fn level(blocks: &mut Blocks) {
    blocks.handle_level(0);
}

fn fail(blocks: &mut Blocks) {
    blocks.end(End::Failed("lost".to_owned()));
}

fn abort(blocks: &mut Blocks) {
    blocks.end(End::Abort);
}

fn actions(blocks: &mut Blocks) -> Vec<Action> {
    std::iter::from_fn(|| blocks.poll_action()).collect()
}

fn reach(steps: &[Step]) -> Blocks {
    let mut blocks = Blocks::expected();
    for step in steps {
        step(&mut blocks);
        actions(&mut blocks);
    }
    blocks
}

fn seen(blocks: &Blocks) -> String {
    let owner = match blocks.owner {
        _ if blocks.over => return "over".to_owned(),
        Owner::Agent => "agent",
        Owner::Engine => "engine",
        Owner::Asked => "asked",
        Owner::Granted { .. } => "granted",
    };
    let merging = if blocks.merging { ", merging" } else { "" };
    format!("{owner}{merging}")
}

#[test]
fn every_event_does_this_in_every_state() {
    let mut text = String::new();
    for (state, steps) in STATES {
        text += &format!("{state} ({})\n", seen(&reach(steps)));
        for (name, event) in EVENTS {
            let mut blocks = reach(steps);
            // A merge ends only where there is one.
            if name == "merged" && !blocks.merging {
                text += &format!("    {name:13}-\n");
                continue;
            }
            event(&mut blocks);
            let done: Vec<String> = actions(&mut blocks)
                .iter()
                .map(|action| format!("{action:?}"))
                .collect();
            let line = format!("    {name:13}{:19}{}", seen(&blocks), done.join(", "));
            text += line.trim_end();
            text.push('\n');
        }
    }
    insta::assert_snapshot!(text);
}
