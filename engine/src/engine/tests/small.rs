//! Single rules of the engine.

use core::ops::Range;

use super::fake::{VOCABULARY, engine, read, truth};
use super::*;

fn request(prompt: usize, max_tokens: u32, kv: KvSource) -> Request {
    let token = |i| 1 + u32::try_from(i).unwrap() * 3 % (VOCABULARY - 1);
    request_of((0..prompt).map(token).collect(), max_tokens, kv)
}

fn small() -> Engine {
    engine(EngineOptions {
        blocks: 10,
        chunk_tokens: 100,
        ..EngineOptions::default()
    })
}

/// Every call, as (request, layer, tokens).
#[derive(Default)]
struct Layers(Vec<(RequestId, usize, Range<u32>)>);

impl StepObserver for Layers {
    fn layer_ready(
        &mut self,
        request: RequestId,
        layer: usize,
        tokens: Range<u32>,
        kv: SequenceKv<'_>,
    ) {
        assert!(kv.tokens() >= tokens.end);
        self.0.push((request, layer, tokens));
    }
}

#[test]
fn a_prompt_is_reported_layer_by_layer_and_chunk_by_chunk() {
    let mut engine = small();
    let id = engine.submit(request(130, 1, KvSource::Compute)).unwrap();
    let mut layers = Layers::default();
    for _ in 0..2 {
        engine.step(Timestamp::ORIGIN, &mut layers).unwrap();
    }
    let expected = [
        (id, 0, 0..100),
        (id, 1, 0..100),
        (id, 0, 100..130),
        (id, 1, 100..130),
    ];
    assert_eq!(layers.0, expected);
}

#[test]
fn chunks_are_shared_by_prompts_in_the_order_of_submission() {
    let mut engine = small();
    let first = engine.submit(request(70, 1, KvSource::Compute)).unwrap();
    let mut other = request(90, 1, KvSource::Compute);
    other.prompt[0] = 60;
    let second = engine.submit(other).unwrap();
    let mut layers = Layers::default();
    engine.step(Timestamp::ORIGIN, &mut layers).unwrap();
    assert_eq!(layers.0[..2], [(first, 0, 0..70), (second, 0, 0..30)]);
}

#[test]
fn a_prompt_asked_again_costs_one_token() {
    let mut engine = small();
    let mut asked = request(130, 1, KvSource::Compute);
    asked.retain = true;
    let first = engine.submit(asked.clone()).unwrap();
    run(&mut engine);
    for _ in 0..2 {
        let again = engine.submit(asked.clone()).unwrap();
        assert_eq!(engine.cached_tokens(again).unwrap(), 129);
        let mut layers = Layers::default();
        engine.step(Timestamp::ORIGIN, &mut layers).unwrap();
        assert_eq!(layers.0[0], (again, 0, 129..130));
        assert!(engine.is_idle(Timestamp::ORIGIN));
    }
    let kv = engine.kv(first).unwrap();
    for (position, row) in truth(&asked.prompt).iter().enumerate() {
        assert_eq!(read(&kv, position), *row);
    }
    engine.release(first).unwrap();
    assert_eq!(engine.kv(first).err(), Some(UnknownRequest(first)));
}

#[test]
fn a_conversation_goes_on_from_its_last_answer() {
    let mut engine = small();
    let first = request(100, 30, KvSource::Compute);
    let id = engine.submit(first.clone()).unwrap();
    let clients = run(&mut engine);
    let mut next = request(1, 5, KvSource::Compute);
    next.prompt = [&first.prompt[..], &clients.of(id).committed, &[5, 6, 7]].concat();
    // All but the last token of the answer, which was never evaluated, is here; transfers need whole blocks.
    assert_eq!(engine.probe(&next.prompt, KvSource::Compute), 129);
    assert_eq!(engine.probe(&next.prompt, KvSource::Transfer), 128);
}

#[test]
fn requests_that_make_no_sense_are_refused_with_what_to_do() {
    let mut engine = small();
    let refused = |engine: &mut Engine, request: Request| {
        let error = engine.submit(request).unwrap_err();
        (error.to_string(), error.is_retryable())
    };
    let cases = [
        (
            request(0, 1, KvSource::Compute),
            "at least one token",
            false,
        ),
        (request(1, 0, KvSource::Compute), "max_tokens", false),
        (
            request(700, 50, KvSource::Compute),
            "room for 640: shorten it to 639 or fewer, or start the engine with a larger --max-tokens",
            false,
        ),
    ];
    for (request, words, retryable) in cases {
        let (message, again) = refused(&mut engine, request);
        assert!(message.contains(words), "{message}");
        assert_eq!(again, retryable);
    }
    let mut strange = request(5, 1, KvSource::Compute);
    strange.prompt[3] = VOCABULARY;
    assert!(refused(&mut engine, strange).0.contains("position 3"));
    engine.submit(request(500, 50, KvSource::Compute)).unwrap();
    let (message, again) = refused(&mut engine, request(100, 50, KvSource::Compute));
    let words = "room for 128 tokens of KV, and 64 of 640 are free";
    assert!(message.contains(words) && again, "{message}");
}

#[test]
fn a_prompt_longer_than_the_context_is_told_so() {
    let mut engine = engine(EngineOptions::default());
    let error = engine.submit(request(1000, 1, KvSource::Compute));
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("the model's context 1000: shorten it to 999 or fewer"),
        "{message}"
    );
}

#[test]
fn an_output_longer_than_the_context_is_cut() {
    let mut engine = engine(EngineOptions {
        blocks: 20,
        chunk_tokens: 1000,
        ..EngineOptions::default()
    });
    let id = engine.submit(request(990, 50, KvSource::Compute)).unwrap();
    let clients = run(&mut engine);
    assert_eq!(clients.of(id).committed.len(), 10);
    assert_eq!(clients.of(id).finished, Some(FinishReason::Length));
}

#[test]
fn kv_is_granted_for_writing_only_while_the_prompt_is_awaited() {
    let mut engine = small();
    let local = engine.submit(request(70, 1, KvSource::Compute)).unwrap();
    assert!(engine.kv_mut(local).is_err());
    let id = engine.submit(request(70, 9, KvSource::Transfer)).unwrap();
    assert_eq!(engine.kv_mut(id).unwrap().first_block(), 0);
    engine.full_ready(id, Exactness::Quantised).unwrap();
    assert!(engine.kv_mut(id).is_err());
    engine.abort(id).unwrap();
    assert_eq!(engine.kv_mut(id).err(), Some(UnknownRequest(id)));
    assert_eq!(engine.first_token(id, 3, None), Err(UnknownRequest(id)));
}

#[test]
#[should_panic(expected = "is shared")]
fn shared_blocks_can_not_be_written() {
    let mut engine = small();
    engine.submit(request(100, 1, KvSource::Compute)).unwrap();
    run(&mut engine);
    let id = engine.submit(request(100, 9, KvSource::Transfer)).unwrap();
    assert_eq!(engine.cached_tokens(id).unwrap(), 64);
    engine.kv_mut(id).unwrap().k_mut(0, 0, 0)[0] = 1;
}

#[test]
fn the_first_token_need_not_wait_for_a_step() {
    let mut engine = small();
    let request_id = engine.submit(request(70, 9, KvSource::Transfer)).unwrap();
    engine.first_token(request_id, 7, None).unwrap();
    assert_eq!(
        engine.take_events(),
        [EngineEvent::Token {
            request: request_id,
            index: 0,
            token: 7,
            provisional: false,
            logprobs: None,
        }]
    );
}

#[test]
fn kv_that_is_not_exact_never_serves_another_request() {
    let mut engine = small();
    let first = request(130, 70, KvSource::Transfer);
    let id = engine.submit(first.clone()).unwrap();
    engine.first_token(id, 1, None).unwrap();
    engine.full_ready(id, Exactness::Quantised).unwrap();
    run(&mut engine);
    assert_eq!(engine.probe(&first.prompt, KvSource::Compute), 0);
}

#[test]
fn the_time_of_a_token_is_learnt_from_steps_that_decode() {
    let mut engine = small();
    engine.submit(request(50, 9, KvSource::Compute)).unwrap();
    let mut now = Timestamp::ORIGIN;
    for _ in 0..5 {
        engine.step(now, &mut ()).unwrap();
        now += Duration::from_millis(25);
    }
    assert_eq!(engine.token_time(), Duration::from_millis(25));
}

#[test]
fn an_engine_that_waits_for_a_residual_says_when_it_is_overdue() {
    let mut engine = small();
    let id = engine.submit(request(70, 9, KvSource::Transfer)).unwrap();
    engine.first_token(id, 7, None).unwrap();
    assert_eq!(engine.wakes_at(Timestamp::ORIGIN), None);
    let due = Timestamp::from_origin(Duration::from_millis(50));
    let anchor = AnchorInfo {
        residual_due: Some(due),
        depth_limit: 0,
    };
    engine.anchor_ready(id, anchor).unwrap();
    assert!(engine.is_idle(Timestamp::ORIGIN));
    assert_eq!(engine.wakes_at(Timestamp::ORIGIN), Some(due));
    assert_eq!(engine.wakes_at(due), None);
}

#[test]
fn an_engine_can_be_moved_to_a_thread() {
    fn is_send<T: Send>() {}
    is_send::<Engine>();
}

#[test]
fn an_engine_that_forgets_is_as_new() {
    let mut engine = small();
    let mut asked = request(100, 5, KvSource::Compute);
    asked.retain = true;
    engine.submit(asked.clone()).unwrap();
    run(&mut engine);
    let id = engine.submit(asked.clone()).unwrap();
    engine.forget();
    assert!(engine.kv(id).is_err() && engine.is_idle(Timestamp::ORIGIN));
    assert_eq!(engine.probe(&asked.prompt, KvSource::Compute), 0);
    assert_eq!(engine.free_blocks(), 10);
}

#[test]
fn a_prompt_that_was_restored_roughly_and_lacks_its_first_token_is_computed_as_a_whole() {
    let mut plain = small();
    let local = plain.submit(request(130, 9, KvSource::Compute)).unwrap();
    let expected = run(&mut plain).of(local).committed.clone();

    let mut engine = small();
    let id = engine.submit(request(130, 9, KvSource::Transfer)).unwrap();
    engine.full_ready(id, Exactness::Quantised).unwrap();
    assert!(engine.is_idle(Timestamp::ORIGIN));
    engine.kv_failed(id, "no first token".to_owned()).unwrap();
    assert_eq!(run(&mut engine).of(id).committed, expected);
    // What was computed is exact, so it may be kept.
    assert_eq!(
        engine.probe(
            &request(130, 9, KvSource::Compute).prompt,
            KvSource::Compute
        ),
        129
    );
}

#[test]
fn a_first_token_from_outside_is_for_transfers_only() {
    let mut engine = small();
    let id = engine.submit(request(70, 2, KvSource::Compute)).unwrap();
    engine.first_token(id, 1, None).unwrap();
    assert_eq!(engine.take_events(), []);
}
