//! What engines may not say, and that whatever they say does no harm.

use lynx_proto::engine::v1::{
    Abort, AnchorReady, Forget, Forgotten, FullReady, GrantReturned, KvFailed, Prefill, Progress,
    Release, Report, Role, Submit, WantGrant, WriteGrant,
};

use super::*;
use crate::pool::Access;
use crate::testing::{Random, attach, make_pool, open_pool};

const BLOCKS: u32 = 8;

fn rules(role: Role, own_front: bool) -> (tempfile::TempDir, Rules) {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(role, BLOCKS);
    make_pool(directory.path(), &attach, 1);
    let access = match role {
        Role::Decode => Access::Write,
        _ => Access::Read,
    };
    let pool = open_pool(directory.path(), &attach, access);
    let rules = Rules::new(pool, attach.context_tokens, own_front);
    (directory, rules)
}

fn asked(tokens: usize, from_token: u32) -> from_agent::Kind {
    from_agent::Kind::Prefill(Prefill {
        request: 1,
        tokens: vec![0; tokens],
        from_token,
        ..Prefill::default()
    })
}

fn started(blocks: &[u32], cached_tokens: u32) -> from_engine::Kind {
    from_engine::Kind::PrefillStarted(PrefillStarted {
        request: 1,
        blocks: blocks.to_vec(),
        cached_tokens,
        start_unix_ns: 0,
    })
}

fn published(layer: u32, first_token: u32, end_token: u32) -> from_engine::Kind {
    from_engine::Kind::Published(Published {
        request: 1,
        layer,
        first_token,
        end_token,
        ..Published::default()
    })
}

fn done() -> from_engine::Kind {
    from_engine::Kind::PrefillDone(PrefillDone {
        request: 1,
        first_token: 5,
        logprobs: None,
    })
}

fn finished() -> from_engine::Kind {
    from_engine::Kind::Finished(Finished {
        request: 1,
        ..Finished::default()
    })
}

fn submitted() -> from_agent::Kind {
    from_agent::Kind::Submit(Submit {
        request: 1,
        transfer: true,
        ..Submit::default()
    })
}

fn expect(tokens: usize, blocks: &[u32]) -> from_engine::Kind {
    from_engine::Kind::Expect(Expect {
        request: 1,
        tokens: vec![0; tokens],
        blocks: blocks.to_vec(),
        ..Expect::default()
    })
}

fn granted() -> from_engine::Kind {
    from_engine::Kind::WriteGrant(WriteGrant { request: 1 })
}

/// What a rule-breaking message is answered with.
fn broken(rules: &mut Rules, kind: from_engine::Kind) -> String {
    rules.heard(kind).unwrap_err().to_string()
}

#[test]
fn a_prefill_goes_through_and_its_blocks_end_with_its_release() {
    let (_directory, mut rules) = rules(Role::Prefill, false);
    rules.said(&asked(100, 0));
    let blocks = match rules.heard(started(&[7, 2], 64)).unwrap() {
        Some(Message::PrefillStarted { blocks, .. }) => blocks,
        other => panic!("{other:?}"),
    };
    rules.heard(published(0, 64, 90)).unwrap();
    rules.heard(published(0, 90, 100)).unwrap();
    assert_eq!((blocks.published(0), blocks.published(1)), (100, 64));
    assert!(broken(&mut rules, done()).contains("not all published"));
    rules.heard(published(1, 64, 100)).unwrap();
    rules.heard(done()).unwrap();
    rules.heard(finished()).unwrap();
    rules.said(&from_agent::Kind::Release(Release { request: 1 }));
    assert_eq!(Arc::strong_count(&blocks), 1);
    assert!(broken(&mut rules, finished()).contains("no request 1"));
}

#[test]
fn a_release_before_the_end_leaves_only_the_end_to_say() {
    let (_directory, mut rules) = rules(Role::Prefill, false);
    rules.said(&asked(64, 0));
    rules.heard(started(&[0], 64)).unwrap();
    rules.heard(done()).unwrap();
    rules.said(&from_agent::Kind::Release(Release { request: 1 }));
    assert!(broken(&mut rules, published(0, 0, 64)).contains("released"));
    assert!(broken(&mut rules, started(&[0], 64)).contains("started before"));
    let refused = from_engine::Kind::Refused(Refused {
        request: 1,
        ..Refused::default()
    });
    assert!(broken(&mut rules, refused).contains("has taken"));
    assert!(rules.pool.is_unclaimed());
    rules.heard(finished()).unwrap();
    assert!(rules.requests.is_empty());
}

#[test]
fn publishing_breaks_no_order_and_reaches_nowhere_else() {
    let (_directory, mut rules) = rules(Role::Prefill, false);
    rules.said(&asked(200, 128));
    assert!(broken(&mut rules, published(0, 0, 64)).contains("not started"));
    rules.heard(started(&[0, 1, 2, 3], 64)).unwrap();
    // Tokens before those that were asked for may be left out; others may not.
    rules.heard(published(0, 128, 160)).unwrap();
    for (layer, first, end) in [
        (0, 128, 160),
        (0, 161, 200),
        (0, 160, 160),
        (0, 160, 201),
        (1, 129, 160),
        (1, 0, 64),
    ] {
        let why = broken(&mut rules, published(layer, first, end));
        assert!(why.contains("published tokens"), "{why}");
    }
    assert!(broken(&mut rules, published(2, 0, 64)).contains("has 2 layers"));
    assert!(broken(&mut rules, started(&[4, 5, 6, 7], 0)).contains("started before"));
}

#[test]
fn block_tables_are_checked_once_and_for_all() {
    let (_directory, mut rules) = rules(Role::Prefill, false);
    rules.said(&asked(100, 0));
    for (blocks, cached) in [(&[0][..], 0), (&[0, BLOCKS], 0), (&[0, 1], 101)] {
        let why = broken(&mut rules, started(blocks, cached));
        assert!(why.contains("request 1"), "{why}");
    }
    rules.heard(started(&[0, 1], 100)).unwrap();
}

#[test]
fn a_grant_is_the_agents_between_its_question_and_its_answer() {
    let (_directory, mut rules) = rules(Role::Decode, false);
    assert!(broken(&mut rules, expect(64, &[0])).contains("no request"));
    rules.said(&submitted());
    let mut blocks = match rules.heard(expect(64, &[3])).unwrap() {
        Some(Message::Expect(expected)) => expected.blocks,
        other => panic!("{other:?}"),
    };
    assert!(broken(&mut rules, expect(64, &[3])).contains("announced before"));
    let writable = |blocks: &mut Writable| blocks.sink(0, lynx_kernels::Kind::K, 0..64).is_ok();
    assert!(writable(&mut blocks));
    rules.said(&from_agent::Kind::AnchorReady(AnchorReady {
        request: 1,
        ..AnchorReady::default()
    }));
    assert!(!writable(&mut blocks));
    assert!(broken(&mut rules, granted()).contains("not asked"));
    let want = from_agent::Kind::WantGrant(WantGrant { request: 1 });
    rules.said(&want);
    assert!(rules.heard(granted()).unwrap().is_some());
    assert!(writable(&mut blocks));
    rules.said(&from_agent::Kind::GrantReturned(GrantReturned {
        request: 1,
    }));
    assert!(!writable(&mut blocks));
    // A grant that crosses the agent's last word is none.
    rules.said(&want);
    rules.said(&from_agent::Kind::KvFailed(KvFailed {
        request: 1,
        reason: String::new(),
    }));
    assert!(rules.heard(granted()).unwrap().is_none());
    assert!(!writable(&mut blocks));
    rules.heard(finished()).unwrap();
}

#[test]
fn an_expect_that_crosses_an_abort_is_nothing() {
    let (_directory, mut rules) = rules(Role::Decode, false);
    rules.said(&submitted());
    rules.said(&from_agent::Kind::Abort(Abort { request: 1 }));
    assert!(rules.heard(expect(64, &[3])).unwrap().is_none());
    rules.heard(finished()).unwrap();
}

/// An Expect of a request that the engine began.
fn began(tokens: usize, blocks: &[u32]) -> from_engine::Kind {
    from_engine::Kind::Expect(Expect {
        request: ENGINES | 1,
        tokens: vec![0; tokens],
        blocks: blocks.to_vec(),
        client: 7,
        ..Expect::default()
    })
}

#[test]
fn an_engine_with_its_own_front_end_starts_requests_itself() {
    let (_directory, mut rules) = rules(Role::Decode, true);
    assert!(broken(&mut rules, began(5000, &[0])).contains("takes 4096"));
    let Some(Message::Expect(expected)) = rules.heard(began(64, &[0])).unwrap() else {
        panic!("no Expect")
    };
    assert_eq!((expected.request, expected.client), (ENGINES | 1, 7));
    let finished = from_engine::Kind::Finished(Finished {
        request: ENGINES | 1,
        ..Finished::default()
    });
    assert!(rules.heard(finished).unwrap().is_some());
}

#[test]
fn the_numbers_of_engine_and_agent_can_not_meet() {
    let (_directory, mut rules) = rules(Role::Decode, true);
    assert!(broken(&mut rules, expect(64, &[0])).contains("set bit 63"));
    let (_directory, mut rules) = self::rules(Role::Decode, false);
    assert!(broken(&mut rules, began(64, &[0])).contains("there is no request"));
}

#[test]
fn a_session_that_ends_takes_every_grant_with_it() {
    let (_directory, mut rules) = rules(Role::Decode, true);
    let Some(Message::Expect(expected)) = rules.heard(began(64, &[0])).unwrap() else {
        panic!("no Expect")
    };
    assert!(expected.blocks.is_granted());
    drop(rules);
    assert!(!expected.blocks.is_granted());
}

/// Small numbers, so that messages meet each other's requests, blocks and tokens often, and now and then a large one.
fn number(random: &mut Random) -> u32 {
    match random.below(20) {
        0 => u32::MAX - random.below(3),
        1..=9 => random.below(4),
        _ => random.below(5) * 64,
    }
}

fn any_from_engine(random: &mut Random) -> from_engine::Kind {
    let whose = [0, 0, ENGINES][random.below(3) as usize];
    let request = whose | u64::from(random.below(4));
    let length = random.below(4);
    let blocks = (0..length).map(|_| random.below(BLOCKS + 1)).collect();
    let (a, b, c) = (number(random), number(random), number(random));
    match random.below(12) {
        0 => from_engine::Kind::Attach(attach(Role::Prefill, 1)),
        1 | 2 => from_engine::Kind::PrefillStarted(PrefillStarted {
            request,
            blocks,
            cached_tokens: a,
            start_unix_ns: 0,
        }),
        3 | 4 => from_engine::Kind::Published(Published {
            request,
            layer: c % 3,
            first_token: a,
            end_token: b,
            ..Published::default()
        }),
        5 => from_engine::Kind::PrefillDone(PrefillDone {
            request,
            first_token: a,
            logprobs: None,
        }),
        6 | 7 => from_engine::Kind::Expect(Expect {
            request,
            tokens: vec![0; (a % 300) as usize],
            blocks,
            from_token: b,
            ..Expect::default()
        }),
        8 => from_engine::Kind::WriteGrant(WriteGrant { request }),
        9 => from_engine::Kind::Finished(Finished {
            request,
            ..Finished::default()
        }),
        10 => from_engine::Kind::Progress(Progress {
            request,
            events: Vec::new(),
        }),
        _ if a % 2 == 0 => from_engine::Kind::Refused(Refused {
            request,
            ..Refused::default()
        }),
        _ if b % 2 == 0 => from_engine::Kind::Report(Report::default()),
        _ => from_engine::Kind::Forgotten(Forgotten {}),
    }
}

fn any_from_agent(random: &mut Random) -> from_agent::Kind {
    let whose = [0, 0, ENGINES][random.below(3) as usize];
    let request = whose | u64::from(random.below(4));
    let tokens = vec![0; 1 + random.below(200) as usize];
    match random.below(9) {
        0 | 1 => from_agent::Kind::Prefill(Prefill {
            request,
            tokens,
            from_token: random.below(3) * 64,
            ..Prefill::default()
        }),
        2 | 3 => from_agent::Kind::Submit(Submit {
            request,
            transfer: random.below(4) > 0,
            ..Submit::default()
        }),
        4 => from_agent::Kind::Release(Release { request }),
        5 => from_agent::Kind::WantGrant(WantGrant { request }),
        6 => from_agent::Kind::AnchorReady(AnchorReady {
            request,
            ..AnchorReady::default()
        }),
        7 => from_agent::Kind::FullReady(FullReady {
            request,
            exact: true,
        }),
        _ if request == 0 => from_agent::Kind::Forget(Forget {}),
        _ => from_agent::Kind::Abort(Abort { request }),
    }
}

/// Whatever is said, nothing panics; no two requests hold one block to write; and every block that came out can be reached.
#[test]
fn no_order_of_messages_does_harm() {
    let (directory, _) = rules(Role::Decode, true);
    let attach = attach(Role::Decode, BLOCKS);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    bolero::check!().with_type::<u64>().for_each(|seed| {
        let mut random = Random(*seed);
        let own_front = random.below(2) == 0;
        let mut rules = Rules::new(Arc::clone(&pool), attach.context_tokens, own_front);
        let mut held = Vec::new();
        for _ in 0..60 {
            if random.below(3) == 0 {
                rules.said(&any_from_agent(&mut random));
                continue;
            }
            match rules.heard(any_from_engine(&mut random)) {
                Ok(Some(Message::Expect(mut expected))) => {
                    let end = u32::try_from(expected.tokens.len()).unwrap();
                    let tokens = expected.from_token..end;
                    assert!(
                        expected
                            .blocks
                            .sink(1, lynx_kernels::Kind::V, tokens)
                            .is_ok()
                    );
                    held.push(expected);
                }
                Ok(Some(Message::PrefillStarted {
                    blocks,
                    cached_tokens,
                    ..
                })) if cached_tokens > 0 => {
                    let kind = lynx_kernels::Kind::K;
                    assert!(blocks.source(0, kind, 0..cached_tokens).is_ok());
                }
                // A session ends at the first broken rule; here it goes on, to get further into the odd states.
                _ => {}
            }
            if random.below(8) == 0 {
                held.pop();
            }
        }
    });
}

#[test]
fn cached_blocks_are_whole_and_have_numbers() {
    let (_directory, mut rules) = rules(Role::Prefill, false);
    let told = |block, tokens| {
        let added = vec![CachedBlock {
            block,
            parent: 0,
            tokens: vec![1; tokens],
        }];
        from_engine::Kind::CachedBlocks(CachedBlocks {
            reset: true,
            added,
            removed: vec![7],
        })
    };
    assert!(matches!(
        rules.heard(told(1, 64)),
        Ok(Some(Message::CachedBlocks(_)))
    ));
    for (block, tokens) in [(0, 64), (1, 63), (1, 0), (1, 65)] {
        let broken = rules.heard(told(block, tokens)).unwrap_err();
        assert_eq!(broken, Broken::Cached { block, tokens });
    }
}
