//! The state machine against plain decoding, on a model that is a hash function, over random schedules.

mod world;

use super::*;
use world::{FakeModel, Rule, TOKEN_TIME, World};

#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Op {
    Step,
    Steps(u8),
    FirstToken,
    Anchor { depth: u8, due_in_ms: Option<u8> },
    Redraft,
    Full,
    Failed,
    Abort,
    Pass { ms: u8 },
}

fn apply(world: &mut World, op: Op) {
    match op {
        Op::Step => {
            world.step();
        }
        Op::Steps(n) => {
            for _ in 0..n % 16 {
                world.step();
            }
        }
        Op::FirstToken => world.request.first_token(world.model.full(&[])),
        Op::Anchor { depth, due_in_ms } => world.request.anchor_ready(AnchorInfo {
            residual_due: due_in_ms.map(|ms| world.now + Duration::from_millis(u64::from(ms))),
            depth_limit: u32::from(depth % 40),
        }),
        Op::Redraft => world.request.redraft(),
        Op::Full => world.request.full_ready(),
        Op::Failed => {
            world.request.failed();
        }
        Op::Abort => world.request.abort(),
        Op::Pass { ms } => world.now += Duration::from_millis(u64::from(ms)),
    }
    world.look();
}

#[test]
fn committed_output_is_that_of_plain_decoding_whatever_the_schedule() {
    bolero::check!()
        .with_type::<(u64, u8, u8, u8, Vec<Op>)>()
        .with_iterations(20_000)
        .for_each(|(seed, error, vocabulary, max_tokens, ops)| {
            let model = FakeModel {
                seed: *seed,
                vocabulary: u64::from(*vocabulary % 30) + 3,
                error: u64::from(*error % 17),
            };
            let rule = Rule {
                max_tokens: usize::from(*max_tokens % 50) + 1,
            };
            let (plain, reason) = model.plain(rule);
            let mut world = World::new(model, rule, 24);
            for op in ops {
                apply(&mut world, *op);
            }
            assert!(plain.starts_with(&world.client.committed));
            // Whatever came before, a failure of the transfer brings the request to its end.
            apply(&mut world, Op::Failed);
            apply(&mut world, Op::Full);
            for _ in 0..60 {
                world.step();
            }
            assert!(world.client.longest_draft <= 24);
            if world.client.finished == Some(FinishReason::Aborted) {
                assert!(plain.starts_with(&world.client.committed));
            } else {
                assert_eq!(world.client.committed, plain);
                assert_eq!(world.client.finished, Some(reason));
            }
        });
}

/// A model that rarely ends, a request without a stop in sight.
fn long_world(error: u64, max_draft: u32) -> World {
    let model = FakeModel {
        seed: 5,
        vocabulary: 1 << 30,
        error,
    };
    let mut world = World::new(model, Rule { max_tokens: 100 }, max_draft);
    apply(&mut world, Op::FirstToken);
    world
}

fn anchor(world: &mut World, depth_limit: u32, residual_due: Option<Timestamp>) {
    world.request.anchor_ready(AnchorInfo {
        residual_due,
        depth_limit,
    });
}

#[test]
fn what_a_finer_kv_gives_replaces_a_coarse_draft_and_all_after_it() {
    let mut world = long_world(8, 16);
    anchor(&mut world, 16, None);
    apply(&mut world, Op::Steps(12));
    let before = world.client.provisional.clone();
    apply(&mut world, Op::Redraft);
    assert!(matches!(
        world.step(),
        Action::Redraft { position: 100, .. }
    ));
    let after = world.client.provisional.clone();
    let kept = agreeing(&before, &after);
    assert!(kept < before.len(), "this seed has a mistake to mend");
    assert_eq!(after.len(), kept + 1);
    assert!(
        matches!(world.step(), Action::Draft { .. }),
        "drafting goes on"
    );
}

#[test]
fn a_long_draft_is_compared_in_pieces_and_a_mistake_ends_it() {
    let mut world = long_world(0, 64);
    anchor(&mut world, 64, None);
    for _ in 0..40 {
        world.step();
    }
    apply(&mut world, Op::Full);
    let rows = |action| match action {
        Action::Verify { tokens, .. } => tokens.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(world.step()), CHECKED_TOGETHER);
    assert_eq!(world.client.committed.len(), 1 + CHECKED_TOGETHER);
    assert_eq!(world.client.provisional.len(), 40 - CHECKED_TOGETHER);
    assert_eq!(rows(world.step()), CHECKED_TOGETHER);
    assert_eq!(rows(world.step()), 40 % CHECKED_TOGETHER + 1);
    assert_eq!(world.client.committed.len(), 42);

    let mut world = long_world(8, 64);
    anchor(&mut world, 64, None);
    for _ in 0..40 {
        world.step();
    }
    apply(&mut world, Op::Full);
    assert_eq!(rows(world.step()), CHECKED_TOGETHER);
    assert!(
        world.client.provisional.is_empty(),
        "half of these drafts are wrong"
    );
}

#[test]
fn nothing_is_drafted_anew_without_drafts_or_without_an_anchor() {
    let mut world = long_world(0, 8);
    apply(&mut world, Op::Redraft);
    assert_eq!(world.step(), Action::Wait);
    anchor(&mut world, 8, None);
    apply(&mut world, Op::Redraft);
    assert!(matches!(world.step(), Action::Draft { .. }));
}

#[test]
fn nothing_is_drafted_before_the_first_token_and_the_anchor() {
    let model = long_world(0, 8).model;
    let mut world = World::new(model, Rule { max_tokens: 9 }, 8);
    assert_eq!(world.step(), Action::Wait);
    anchor(&mut world, 8, None);
    assert_eq!(world.step(), Action::Wait);
    apply(&mut world, Op::FirstToken);
    assert!(matches!(world.step(), Action::Draft { position: 100, .. }));
}

#[test]
fn drafts_stop_at_the_depth_limit_and_at_the_engines_own() {
    for (max_draft, depth_limit) in [(3, 10), (10, 3)] {
        let mut world = long_world(0, max_draft);
        anchor(&mut world, depth_limit, None);
        let drafted = (0..20)
            .filter(|_| matches!(world.step(), Action::Draft { .. }))
            .count();
        assert_eq!(drafted, 3);
        assert_eq!(world.step(), Action::Wait);
    }
}

#[test]
fn nothing_is_drafted_shortly_before_the_residual_is_due() {
    let mut world = long_world(0, 30);
    let due = Timestamp::ORIGIN + TOKEN_TIME * 5;
    assert_eq!(world.request.wakes_at(TOKEN_TIME), None);
    anchor(&mut world, 30, Some(due));
    assert_eq!(
        world.request.wakes_at(TOKEN_TIME),
        Some(due + TOKEN_TIME * 2)
    );
    let kinds: Vec<_> = (0..8)
        .map(|_| matches!(world.step(), Action::Draft { .. }))
        .collect();
    // At 50 ms it is due; from 30 ms on it is two tokens' time away, and at 70 ms it is plainly late.
    assert_eq!(
        kinds,
        [true, true, true, true, false, false, false, true],
        "{kinds:?}"
    );
}

#[test]
fn all_drafts_are_verified_in_one_forward_and_a_right_draft_gains_a_token() {
    let mut world = long_world(0, 4);
    anchor(&mut world, 30, None);
    for _ in 0..6 {
        world.step();
    }
    assert_eq!(world.client.provisional.len(), 4);
    world.request.full_ready();
    let action = world.step();
    assert!(
        matches!(&action, Action::Verify { tokens, position: 100 } if tokens.len() == 5),
        "{action:?}"
    );
    assert_eq!(world.client.committed.len(), 6);
    assert!(matches!(world.step(), Action::Decode { position: 105, .. }));
}

#[test]
fn a_wrong_draft_is_retracted_with_all_that_follow() {
    let mut world = long_world(16, 4);
    anchor(&mut world, 30, None);
    for _ in 0..4 {
        world.step();
    }
    world.request.full_ready();
    world.request.evaluated(&[9, 9, 9, 9, 9]);
    let changes: Vec<_> = world.request.changes().collect();
    assert_eq!(
        changes,
        [
            Output::Verified {
                drafted: 4,
                accepted: 0
            },
            Output::Retracted { from_index: 1 },
            Output::Token {
                index: 1,
                token: 9,
                provisional: false
            },
        ]
    );
}

#[test]
fn a_draft_that_ends_the_output_is_verified_without_its_own_row() {
    let model = FakeModel {
        seed: 5,
        vocabulary: 1 << 30,
        error: 0,
    };
    let mut world = World::new(model, Rule { max_tokens: 3 }, 9);
    apply(&mut world, Op::FirstToken);
    anchor(&mut world, 9, None);
    for _ in 0..5 {
        world.step();
    }
    assert_eq!(world.client.provisional.len(), 2);
    assert_eq!(world.client.finished, None, "a draft ends nothing for good");
    world.request.full_ready();
    assert!(matches!(world.step(), Action::Verify { tokens, .. } if tokens.len() == 2));
    assert_eq!(world.client.finished, Some(FinishReason::Length));
}

#[test]
fn a_failure_keeps_the_drafts_until_the_computed_prompt_verifies_them() {
    let mut world = long_world(0, 4);
    anchor(&mut world, 30, None);
    for _ in 0..5 {
        world.step();
    }
    assert!(world.request.failed());
    assert!(
        !world.request.failed(),
        "the second failure is of no interest"
    );
    assert_eq!(world.step(), Action::Compute);
    assert!(matches!(world.step(), Action::Verify { tokens, .. } if tokens.len() == 5));
    assert_eq!(world.client.committed.len(), 6);
}

#[test]
fn a_full_prompt_without_a_first_token_waits_for_it_or_for_a_failure() {
    let model = long_world(0, 4).model;
    let mut world = World::new(model, Rule { max_tokens: 3 }, 4);
    world.request.full_ready();
    assert_eq!(world.step(), Action::Wait);
    assert!(world.request.failed());
    assert_eq!(world.step(), Action::Compute);
    assert_eq!(world.client.committed.len(), 1);
}

#[test]
fn an_abort_retracts_the_drafts() {
    let mut world = long_world(0, 4);
    anchor(&mut world, 30, None);
    for _ in 0..5 {
        world.step();
    }
    world.request.abort();
    let changes: Vec<_> = world.request.changes().collect();
    assert_eq!(
        changes,
        [
            Output::Retracted { from_index: 1 },
            Output::Finished(FinishReason::Aborted)
        ]
    );
    assert_eq!(world.step(), Action::Done);
}

#[test]
fn what_comes_after_the_end_changes_nothing() {
    let mut world = long_world(0, 4);
    world.request.abort();
    world.look();
    world.request.first_token(4);
    anchor(&mut world, 9, None);
    world.request.full_ready();
    world.request.evaluated(&[3]);
    world.request.abort();
    assert!(!world.request.failed());
    assert_eq!(world.request.changes().count(), 0);
}
