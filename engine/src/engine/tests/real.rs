//! The engine over the real model.

use core::num::NonZeroUsize;

use super::*;
use crate::testing::{test_model, test_model_gguf};

const TEXT: &str = "The harbour was quiet at dawn. Two fishing boats lay at the pier, their nets folded, and a cat sat on the \
    wall and watched the water. The old keeper climbed the stairs of the lighthouse, as he had done every morning for \
    thirty years, counted the ships on the horizon, and wrote their number into a book that nobody but him had ever read. \
    On that morning there were";

fn engine() -> Engine {
    let tokenizer = Tokenizer::from_gguf(&test_model_gguf()).unwrap();
    let options = EngineOptions {
        blocks: 24,
        threads: NonZeroUsize::new(2).unwrap(),
        chunk_tokens: 40,
        max_draft: 12,
        ..EngineOptions::default()
    };
    Engine::new(test_model(), Arc::new(tokenizer), options).unwrap()
}

fn request(engine: &Engine, text: &str, sampling: Sampling, kv: KvSource) -> Request {
    Request {
        prompt: engine.tokenizer().prompt(text).unwrap(),
        max_tokens: 16,
        sampling,
        adjust: Adjust::default(),
        top_logprobs: None,
        stop: Stop::default(),
        kv,
        retain: kv == KvSource::Compute,
    }
}

fn run(engine: &mut Engine, clients: &mut Clients) {
    while !engine.is_idle(Timestamp::ORIGIN) {
        clients.see(engine.step(Timestamp::ORIGIN, &mut ()).unwrap());
    }
}

fn sampled() -> Sampling {
    Sampling::new(0.8, 40, 0.95, 11).unwrap()
}

/// The output of a request that has an engine for itself.
fn alone(text: &str, sampling: Sampling) -> Vec<TokenId> {
    let mut engine = engine();
    let request = request(&engine, text, sampling, KvSource::Compute);
    let id = engine.submit(request).unwrap();
    let mut clients = Clients::default();
    run(&mut engine, &mut clients);
    clients.of(id).committed.clone()
}

#[test]
fn requests_in_a_batch_get_what_they_get_alone() {
    let mut engine = engine();
    let cases = [
        (TEXT, Sampling::GREEDY),
        (&TEXT[..200], sampled()),
        (
            "<|im_start|>user\nName three rivers.<|im_end|>\n<|im_start|>assistant\n",
            Sampling::GREEDY,
        ),
    ];
    let mut clients = Clients::default();
    let mut ids = Vec::new();
    for (text, sampling) in cases {
        let request = request(&engine, text, sampling, KvSource::Compute);
        ids.push(engine.submit(request).unwrap());
        // The next one comes while this one is being computed.
        clients.see(engine.step(Timestamp::ORIGIN, &mut ()).unwrap());
    }
    run(&mut engine, &mut clients);
    for (id, (text, sampling)) in ids.into_iter().zip(cases) {
        assert_eq!(clients.of(id).committed, alone(text, sampling));
    }
}

/// Copies the KV of one engine's request into another's, with the lowest bits of every number cleared.
fn copy(from: &Engine, source: RequestId, to: &mut Engine, target: RequestId, cleared: u32) {
    let config = from.config().clone();
    let from = from.kv(source).unwrap();
    let mut to = to.kv_mut(target).unwrap();
    let keep = u16::MAX << cleared;
    for block in to.first_block()..(from.tokens() as usize).div_ceil(crate::BLOCK_TOKENS) {
        for layer in 0..config.layers {
            for head in 0..config.kv_heads {
                let clear = |into: &mut [u16], tile: &[u16]| {
                    for (to, from) in into.iter_mut().zip(tile) {
                        *to = from & keep;
                    }
                };
                clear(to.k_mut(layer, head, block), from.k(layer, head, block));
                clear(to.v_mut(layer, head, block), from.v(layer, head, block));
            }
        }
    }
}

/// A prefill node with the prompt computed, a decode node that waits for it, and how they end.
struct Pair {
    prefill: Engine,
    source: RequestId,
    decode: Engine,
    target: RequestId,
    clients: Clients,
}

impl Pair {
    fn new(sampling: Sampling) -> Self {
        let (mut prefill, mut decode) = (engine(), engine());
        let mut asked = request(&prefill, TEXT, sampling, KvSource::Compute);
        asked.max_tokens = 1;
        let source = prefill.submit(asked).unwrap();
        let mut clients = Clients::default();
        run(&mut prefill, &mut clients);
        let first = clients.of(source).committed[0];
        let target = decode
            .submit(request(&decode, TEXT, sampling, KvSource::Transfer))
            .unwrap();
        decode.first_token(target, first, None).unwrap();
        let mut clients = Clients::default();
        clients.see(decode.take_events());
        assert_eq!(clients.of(target).committed, [first]);
        Self {
            prefill,
            source,
            decode,
            target,
            clients,
        }
    }

    /// An anchor without the lowest `cleared` bits, and what is drafted on it.
    fn draft(&mut self, cleared: u32, depth_limit: u32) {
        copy(
            &self.prefill,
            self.source,
            &mut self.decode,
            self.target,
            cleared,
        );
        let anchor = AnchorInfo {
            residual_due: None,
            depth_limit,
        };
        self.decode.anchor_ready(self.target, anchor).unwrap();
        run(&mut self.decode, &mut self.clients);
        assert_eq!(self.clients.of(self.target).committed.len(), 1);
    }

    fn complete(&mut self) {
        copy(&self.prefill, self.source, &mut self.decode, self.target, 0);
        self.decode
            .full_ready(self.target, Exactness::Exact)
            .unwrap();
        run(&mut self.decode, &mut self.clients);
    }

    fn client(&self) -> &Client {
        self.clients.of(self.target)
    }
}

#[test]
fn a_transferred_prompt_gives_what_a_local_one_gives() {
    for sampling in [Sampling::GREEDY, sampled()] {
        let plain = alone(TEXT, sampling);
        // From a good anchor to a useless one.
        for cleared in [3, 6, 9] {
            let mut pair = Pair::new(sampling);
            pair.draft(cleared, 10);
            assert_eq!(pair.client().provisional.len(), 10);
            pair.complete();
            assert_eq!(pair.client().committed, plain, "{cleared} bits cleared");
            assert_eq!(pair.client().drafted, 10);
        }
    }
}

#[test]
fn a_draft_on_exact_kv_is_accepted_to_its_end() {
    for sampling in [Sampling::GREEDY, sampled()] {
        let mut pair = Pair::new(sampling);
        pair.draft(0, 10);
        pair.complete();
        assert_eq!((pair.client().drafted, pair.client().accepted), (10, 10));
    }
}

#[test]
fn a_failed_transfer_falls_back_to_computing() {
    let plain = alone(TEXT, sampled());
    let mut pair = Pair::new(sampled());
    pair.draft(7, 6);
    pair.decode
        .kv_failed(pair.target, "the link is down".to_owned())
        .unwrap();
    run(&mut pair.decode, &mut pair.clients);
    assert_eq!(pair.client().committed, plain);
    assert_eq!(pair.client().drafted, 6);
}

#[test]
fn a_restored_prompt_serves_the_next_request() {
    let mut pair = Pair::new(Sampling::GREEDY);
    pair.complete();
    let again = request(&pair.decode, TEXT, Sampling::GREEDY, KvSource::Compute);
    let tokens = again.prompt.len();
    assert_eq!(
        pair.decode.probe(&again.prompt, KvSource::Compute),
        tokens - 1
    );
    let id = pair.decode.submit(again).unwrap();
    run(&mut pair.decode, &mut pair.clients);
    assert_eq!(
        pair.clients.of(id).committed,
        pair.clients.of(pair.target).committed
    );
}
