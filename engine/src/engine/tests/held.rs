//! Requests whose blocks somebody outside writes.

use super::fake::{config, engine, engine_over, truth, write};
use super::*;
use crate::SequenceKvMut;

const NOW: Timestamp = Timestamp::ORIGIN;

fn options() -> EngineOptions {
    EngineOptions {
        blocks: 10,
        chunk_tokens: 100,
        ..EngineOptions::default()
    }
}

fn request(first: TokenId, prompt: usize, max_tokens: u32, kv: KvSource) -> Request {
    let token = |i| 1 + (first + u32::try_from(i).unwrap()) % 60;
    request_of((0..prompt).map(token).collect(), max_tokens, kv)
}

fn anchor() -> AnchorInfo {
    AnchorInfo {
        residual_due: None,
        depth_limit: 64,
    }
}

#[test]
fn a_held_request_is_not_stepped_while_others_are() {
    let mut engine = engine(options());
    let asked = request(3, 70, 9, KvSource::Transfer);
    let held = engine.submit(asked).unwrap();
    engine.first_token(held, 7, None).unwrap();
    engine.anchor_ready(held, anchor()).unwrap();
    let other = request(40, 20, 6, KvSource::Compute);
    let other = engine.submit(other).unwrap();
    engine.take_events();
    engine.hold(held, NOW).unwrap();
    assert!(!engine.is_idle(NOW));
    let clients = run(&mut engine);
    assert_eq!(clients.0.keys().collect::<Vec<_>>(), [&other]);
    assert_eq!(engine.wakes_at(NOW), None);
    engine.unhold(held).unwrap();
    assert!(!engine.is_idle(NOW), "it drafts again");
}

#[test]
fn what_another_writes_into_the_file_while_it_holds_a_request_is_what_the_request_goes_on_from() {
    let local = request(3, 130, 20, KvSource::Compute);
    let mut plain = engine(options());
    let id = plain.submit(local.clone()).unwrap();
    let expected = run(&mut plain).of(id).committed.clone();

    let file = tempfile::tempfile().unwrap();
    let pool = KvPool::shared(&config(1000), 10, &file).unwrap();
    let mut writer = KvPool::shared(&config(1000), 10, &file).unwrap();
    let mut engine = engine_over(pool, options());
    let asked = Request {
        kv: KvSource::Transfer,
        ..local.clone()
    };
    let id = engine.submit(asked).unwrap();
    engine.hold(id, NOW).unwrap();
    let blocks = engine.blocks(id).unwrap().to_vec();
    assert_eq!(blocks.len(), 131_usize.div_ceil(64));
    let mut kv = SequenceKvMut {
        pool: &mut writer,
        blocks: &blocks,
        shared: 0,
        tokens: 130,
    };
    for (position, row) in truth(&local.prompt).into_iter().enumerate() {
        write(&mut kv, position, row);
    }
    engine.unhold(id).unwrap();
    engine.first_token(id, expected[0], None).unwrap();
    engine.full_ready(id, Exactness::Exact).unwrap();
    let clients = run(&mut engine);
    assert_eq!(clients.of(id).committed, expected);
}

#[test]
fn blocks_that_are_being_written_are_not_freed_by_the_end_of_their_request() {
    let mut engine = engine(options());
    let asked = request(3, 70, 1, KvSource::Transfer);
    let id = engine.submit(asked.clone()).unwrap();
    engine.hold(id, NOW).unwrap();
    // Its first token is its last.
    engine.first_token(id, 7, None).unwrap();
    assert_eq!(engine.free_blocks(), 8);
    assert!(engine.blocks(id).is_ok());
    engine.unhold(id).unwrap();
    assert_eq!(engine.free_blocks(), 10);
    assert_eq!(engine.unhold(id), Err(UnknownRequest(id)));
    // Given up by its writer, it ends as any other.
    let id = engine.submit(asked).unwrap();
    engine.hold(id, NOW).unwrap();
    engine.unhold(id).unwrap();
    engine.abort(id).unwrap();
    assert_eq!(engine.free_blocks(), 10);
}

#[test]
fn the_blocks_of_a_retained_request_stay_its_own_whatever_the_cache_has() {
    let mut engine = engine(options());
    let mut asked = request(3, 130, 1, KvSource::Compute);
    asked.retain = true;
    // Both are computed at the same time: the cache takes the blocks of the first.
    let ids = [(); 2].map(|()| engine.submit(asked.clone()).unwrap());
    let before = ids.map(|id| engine.blocks(id).unwrap().to_vec());
    run(&mut engine);
    let after = ids.map(|id| engine.blocks(id).unwrap().to_vec());
    assert_eq!(before, after);
    assert_eq!(engine.free_blocks(), 4);
    for id in ids {
        engine.release(id).unwrap();
    }
    assert_eq!(engine.free_blocks(), 10);
    assert_eq!(engine.probe(&asked.prompt, KvSource::Compute), 129);
}

#[test]
fn the_time_for_which_a_request_is_held_is_not_a_tokens() {
    let mut engine = engine(options());
    let id = engine.submit(request(3, 50, 9, KvSource::Compute)).unwrap();
    let at = |ms| Timestamp::from_origin(Duration::from_millis(ms));
    engine.step(at(0), &mut ()).unwrap();
    engine.step(at(10), &mut ()).unwrap();
    engine.hold(id, at(35)).unwrap();
    engine.unhold(id).unwrap();
    engine.step(at(900), &mut ()).unwrap();
    assert_eq!(engine.token_time(), Duration::from_millis(25));
}
