//! Blocks as outputs grow: who has how many, and who gives his up.

use super::fake::{VOCABULARY, engine};
use super::*;

const NOW: Timestamp = Timestamp::ORIGIN;

fn request(first: TokenId, prompt: usize, max_tokens: u32, kv: KvSource) -> Request {
    let token = |i| 1 + (first + u32::try_from(i).unwrap() * 3) % (VOCABULARY - 1);
    request_of((0..prompt).map(token).collect(), max_tokens, kv)
}

fn local(first: TokenId, prompt: usize, max_tokens: u32) -> Request {
    request(first, prompt, max_tokens, KvSource::Compute)
}

fn with_blocks(blocks: u32) -> Engine {
    engine(EngineOptions {
        blocks,
        chunk_tokens: 100,
        ..EngineOptions::default()
    })
}

fn step(engine: &mut Engine, clients: &mut Clients) {
    clients.see(engine.step(NOW, &mut ()).unwrap());
}

/// What a request gives where nobody else asks, and there is room.
fn alone(request: &Request) -> Vec<TokenId> {
    let mut engine = with_blocks(100);
    let id = engine.submit(request.clone()).unwrap();
    run(&mut engine).of(id).committed.clone()
}

#[test]
fn a_request_begins_with_what_its_prompt_takes_and_gets_a_block_each_64_tokens() {
    let mut engine = with_blocks(10);
    let id = engine.submit(local(3, 60, 150)).unwrap();
    let mut clients = Clients::default();
    let mut seen = Vec::new();
    while !engine.is_idle(NOW) {
        let before = engine.blocks(id).unwrap().len();
        step(&mut engine, &mut clients);
        let Ok(blocks) = engine.blocks(id) else {
            break;
        };
        if blocks.len() > before {
            seen.push((clients.of(id).committed.len(), blocks.len()));
        }
    }
    // The step that gives the sixth token evaluates the fifth, at place 64.
    assert_eq!(seen, [(6, 2), (70, 3), (134, 4)]);
    assert_eq!(clients.of(id).committed.len(), 150);
}

#[test]
fn a_request_that_is_asked_for_all_tokens_leaves_room_for_others() {
    let mut engine = with_blocks(10);
    let long = local(3, 60, u32::MAX);
    let long = (engine.submit(long.clone()).unwrap(), long);
    let short = local(9, 60, 20);
    let short = (engine.submit(short.clone()).unwrap(), short);
    let mut clients = Clients::default();
    while clients.0.get(&short.0).and_then(|c| c.finished).is_none() {
        step(&mut engine, &mut clients);
    }
    assert_eq!(clients.of(long.0).finished, None);
    assert_eq!(clients.of(short.0).committed, alone(&short.1));
    while !engine.is_idle(NOW) {
        step(&mut engine, &mut clients);
    }
    let client = clients.of(long.0);
    assert_eq!(client.finished, Some(FinishReason::Length));
    assert_eq!(
        client.committed.len(),
        10 * 64 - 60,
        "all that there is room for"
    );
    assert_eq!(engine.preemptions(), 0);
}

#[test]
fn the_youngest_gives_its_blocks_to_the_oldest_and_goes_on_with_the_same_tokens() {
    let mut engine = with_blocks(10);
    let asked = [3, 9, 20].map(|first| local(first, 100, 300));
    let ids = asked.clone().map(|request| engine.submit(request).unwrap());
    let mut clients = Clients::default();
    let (mut ended, mut preempted) = (Vec::new(), Vec::new());
    while !engine.is_idle(NOW) {
        let events = engine.step(NOW, &mut ()).unwrap();
        for event in &events {
            match event {
                EngineEvent::Preempted { request } => preempted.push(*request),
                EngineEvent::Finished { request, .. } => ended.push(*request),
                _ => {}
            }
        }
        clients.see(events);
    }
    assert_eq!(ended, ids, "the oldest ends first");
    // The last one goes on beside the second, and gives way to it once more.
    assert_eq!(preempted, [ids[2], ids[1], ids[2]]);
    assert_eq!(engine.preemptions(), 3);
    for (id, request) in ids.into_iter().zip(asked) {
        assert_eq!(clients.of(id).committed, alone(&request));
    }
    assert_eq!(engine.free_blocks(), 10);
}

#[test]
fn who_was_preempted_comes_before_who_was_not_taken_yet() {
    let mut engine = with_blocks(6);
    let (first, second) = (local(3, 100, 200), local(9, 100, 200));
    engine.submit(first).unwrap();
    engine.submit(second).unwrap();
    let mut clients = Clients::default();
    while engine.preempted() == 0 {
        step(&mut engine, &mut clients);
    }
    let third = local(20, 10, 5);
    let error = engine.submit(third.clone()).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(error, SubmitError::OthersWait(1));
    while engine.preempted() > 0 {
        step(&mut engine, &mut clients);
    }
    engine.submit(third).unwrap();
}

#[test]
fn a_new_request_leaves_a_block_to_each_that_grows() {
    let mut engine = with_blocks(6);
    engine.submit(local(3, 60, 200)).unwrap();
    engine.submit(local(9, 60, 200)).unwrap();
    // Of four blocks, two are for those.
    let error = engine.submit(local(20, 150, 30)).unwrap_err();
    let (needed, free, total) = (192, 128, 384);
    assert_eq!(
        error,
        SubmitError::NoRoom {
            needed,
            free,
            total
        }
    );
    engine.submit(local(20, 100, 20)).unwrap();
}

#[test]
fn what_is_preempted_finds_its_blocks_in_the_prefix_cache_while_there_is_room() {
    let mut engine = with_blocks(7);
    engine.submit(local(3, 50, 70)).unwrap();
    let young = local(9, 318, 40);
    let id = engine.submit(young.clone()).unwrap();
    let mut clients = Clients::default();
    while !engine.blocks(id).unwrap().is_empty() {
        step(&mut engine, &mut clients);
    }
    assert!(engine.kv(id).is_err(), "it has none");
    // One block was needed.
    let kept = engine.probe(&young.prompt, KvSource::Transfer);
    assert_eq!(kept, 4 * 64);
    while !engine.is_idle(NOW) {
        step(&mut engine, &mut clients);
    }
    assert_eq!(clients.of(id).committed, alone(&young));
}

#[test]
fn blocks_of_a_transfer_are_nobody_elses_until_it_is_complete() {
    let mut engine = with_blocks(6);
    let old = local(3, 100, 250);
    let old = (engine.submit(old.clone()).unwrap(), old);
    let young = request(9, 180, 30, KvSource::Transfer);
    let id = engine.submit(young.clone()).unwrap();
    engine.hold(id, NOW).unwrap();
    let blocks = engine.blocks(id).unwrap().to_vec();
    let mut clients = run(&mut engine);
    // It needs a fourth, and waits with what it has.
    assert_eq!(clients.of(old.0).committed.len(), 3 * 64 - 100 + 1);
    assert_eq!(engine.blocks(old.0).unwrap().len(), 3);
    engine.unhold(id).unwrap();
    assert!(engine.is_idle(NOW), "more of it is to come");
    assert_eq!(engine.blocks(id).unwrap(), blocks);
    engine.kv_failed(id, "the peer is gone".to_owned()).unwrap();
    clients.see(engine.take_events());
    while !engine.is_idle(NOW) {
        step(&mut engine, &mut clients);
    }
    assert_eq!(engine.preemptions(), 1);
    assert_eq!(clients.of(old.0).committed, alone(&old.1));
    let young = Request {
        kv: KvSource::Compute,
        ..young
    };
    assert_eq!(clients.of(id).committed, alone(&young));
}

#[test]
fn a_draft_takes_no_block_that_another_will_need() {
    let mut engine = engine(EngineOptions {
        blocks: 6,
        chunk_tokens: 100,
        max_draft: 70,
        ..EngineOptions::default()
    });
    let old = engine.submit(local(3, 100, 100)).unwrap();
    let id = engine
        .submit(request(9, 64, 90, KvSource::Transfer))
        .unwrap();
    engine.first_token(id, 5, None).unwrap();
    let anchor = AnchorInfo {
        residual_due: None,
        depth_limit: 70,
    };
    engine.anchor_ready(id, anchor).unwrap();
    let mut clients = Clients::default();
    clients.see(engine.take_events());
    for _ in 0..90 {
        step(&mut engine, &mut clients);
    }
    // The block after its prompt's was there from the start; the last one is for the other.
    assert_eq!(clients.of(old).finished, None);
    assert_eq!(engine.free_blocks(), 1);
    assert_eq!(clients.of(id).provisional.len(), 64);
    while clients.of(old).finished.is_none() {
        step(&mut engine, &mut clients);
    }
    assert_eq!(engine.preemptions(), 0);
    while !engine.is_idle(NOW) {
        step(&mut engine, &mut clients);
    }
    assert_eq!(clients.of(id).provisional.len(), 70);
}

#[test]
fn a_request_for_more_than_the_engine_has_room_for_ends_there() {
    let mut engine = engine(EngineOptions {
        blocks: 10,
        max_sequence: 500,
        ..EngineOptions::default()
    });
    assert_eq!(engine.longest().tokens, 500);
    let id = engine.submit(local(3, 100, 5000)).unwrap();
    let clients = run(&mut engine);
    assert_eq!(clients.of(id).committed.len(), 400);
    assert_eq!(clients.of(id).finished, Some(FinishReason::Length));
}
