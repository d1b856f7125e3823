mod naive;
mod reference;
mod sequence;
mod tiny;

use std::num::NonZeroUsize;

use super::{ForwardError, Logits, LogitsFor, Observer, Span};
use crate::kv::{BlockId, KvPool};
use crate::simd::Level;
use crate::testing::test_model;
use crate::{TokenId, Workers};
use reference::REFERENCES;
use sequence::{Sequence, assert_same};

fn workers(threads: usize) -> Workers {
    Workers::new(NonZeroUsize::new(threads).unwrap()).unwrap()
}

fn highest(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    TokenId::try_from(best.unwrap()).unwrap()
}

/// Text of the three references, again and again: 140 tokens, which end inside the third block.
fn text() -> Vec<TokenId> {
    let all = REFERENCES
        .iter()
        .flat_map(|r| r.prompt.iter().chain(r.next));
    all.copied().cycle().take(140).collect()
}

#[test]
fn greedy_tokens_and_logits_agree_with_an_independent_implementation() {
    let (model, workers) = (test_model(), workers(2));
    for reference in REFERENCES {
        let mut sequence = Sequence::new(&model, 2);
        let first = sequence.feed(&workers, reference.prompt).pop().unwrap();
        for (token, expected) in reference.logits {
            let found = first[token as usize];
            // The reference keeps the cache in 32 bits, this engine in 16.
            assert!(
                (found - expected).abs() < 0.25,
                "token {token}: {found}, expected {expected}"
            );
        }
        let mut tokens = vec![highest(&first)];
        while tokens.len() < reference.next.len() {
            let logits = sequence
                .feed(&workers, &tokens[tokens.len() - 1..])
                .pop()
                .unwrap();
            tokens.push(highest(&logits));
        }
        assert_eq!(tokens, reference.next);
    }
}

#[test]
fn however_a_prompt_is_cut_its_logits_and_cache_have_the_same_bits() {
    let (model, text) = (test_model(), text());
    let mut alone = Sequence::new(&model, 3);
    let expected: Vec<_> = text
        .iter()
        .flat_map(|&token| alone.feed(&workers(1), &[token]))
        .collect();
    for (index, cut) in [2, 3, 5, 6, 7, 13, 25, 64, 140].into_iter().enumerate() {
        let workers = workers(1 + index % 2);
        let mut sequence = Sequence::new(&model, 3);
        let found: Vec<_> = text
            .chunks(cut)
            .flat_map(|tokens| sequence.feed(&workers, tokens))
            .collect();
        assert_same(&expected, &found, &format!("cut into pieces of {cut}"));
        assert_eq!(
            alone.cache(),
            sequence.cache(),
            "cache when cut into pieces of {cut}"
        );
    }
}

#[test]
fn one_thread_and_several_agree_when_a_sequence_is_divided() {
    let (model, text) = (test_model(), text());
    let mut expected = Sequence::new(&model, 8);
    let mut found = Sequence::new(&model, 8);
    let long: Vec<_> = text.iter().copied().cycle().take(480).collect();
    for part in [&long[..471], &long[471..472], &long[472..475], &long[475..]] {
        let rows = expected.feed(&workers(1), part);
        assert_same(
            &rows[rows.len() - 1..],
            &found.feed_last(&workers(3), part),
            "three threads",
        );
    }
    assert_eq!(expected.cache(), found.cache());
}

#[test]
fn sequences_in_one_call_do_not_change_each_other() {
    let (model, text) = (test_model(), text());
    let workers = workers(2);
    // One is being read, one decodes, one verifies a draft, and their blocks are all over one pool.
    let parts = [(0, 70), (64, 1), (90, 9)];
    let tables = [[5, 0, 9], [2, 7, 1], [8, 3, 6]].map(|table| table.map(BlockId));
    let mut pool = KvPool::new(model.config(), 10);
    let mut expected = Vec::new();
    let mut alone = Vec::new();
    let span = |start: usize, end, blocks, logits| Span {
        tokens: &text[start..end],
        start: u32::try_from(start).unwrap(),
        blocks,
        logits,
    };
    for ((start, count), blocks) in parts.iter().zip(&tables) {
        let mut sequence = Sequence::new(&model, 3);
        sequence.feed(&workers, &text[..*start]);
        expected.extend(sequence.feed(&workers, &text[*start..start + count]));
        alone.push(sequence);
        if *start > 0 {
            let span = span(0, *start, blocks, LogitsFor::None);
            model
                .forward(
                    &workers,
                    &mut pool,
                    &[span],
                    &mut (),
                    &mut Logits::default(),
                )
                .unwrap();
        }
    }
    let spans: Vec<_> = parts
        .iter()
        .zip(&tables)
        .map(|((start, count), blocks)| span(*start, start + count, blocks, LogitsFor::All))
        .collect();
    let mut logits = Logits::default();
    model
        .forward(&workers, &mut pool, &spans, &mut (), &mut logits)
        .unwrap();
    let found: Vec<_> = (0..logits.rows())
        .map(|row| logits.row(row).to_vec())
        .collect();
    assert_same(&expected, &found, "three sequences together");
    for ((sequence, blocks), (start, count)) in alone.iter().zip(&tables).zip(parts) {
        assert_eq!(
            sequence.cache(),
            sequence::cache(&pool, blocks, start + count, model.config())
        );
    }
}

#[test]
fn all_instruction_levels_agree_on_the_real_model() {
    let (model, text) = (test_model(), text());
    let mut expected = None;
    for level in Level::available() {
        let workers = Workers::with_level(NonZeroUsize::MIN, level).unwrap();
        let mut sequence = Sequence::new(&model, 1);
        let mut rows = sequence.feed(&workers, &text[..5]);
        rows.extend(sequence.feed(&workers, &text[5..6]));
        let (first, cache) = expected.get_or_insert_with(|| (rows.clone(), sequence.cache()));
        assert_same(first, &rows, &format!("{level}"));
        assert_eq!(*cache, sequence.cache(), "{level}");
    }
}

/// Checks that keys and values are there when it is told so.
struct Watch {
    written: Vec<usize>,
    queries: Vec<(usize, usize)>,
}

impl Observer for Watch {
    fn layer_written(&mut self, layer: usize, pool: &KvPool) {
        let block = BlockId(0);
        assert!(pool.v(layer, block, 0)[..64].iter().any(|&bits| bits != 0));
        self.written.push(layer);
    }

    fn wants_queries(&self) -> bool {
        true
    }

    fn queries(&mut self, layer: usize, queries: &[f32]) {
        self.queries.push((layer, queries.len()));
    }
}

#[test]
fn an_observer_sees_each_layer_after_it_is_written() {
    let model = test_model();
    let mut pool = KvPool::new(model.config(), 1);
    let mut watch = Watch {
        written: Vec::new(),
        queries: Vec::new(),
    };
    let span = Span {
        tokens: &[504, 3575, 282],
        start: 0,
        blocks: &[BlockId(0)],
        logits: LogitsFor::None,
    };
    let mut logits = Logits::default();
    model
        .forward(&workers(2), &mut pool, &[span], &mut watch, &mut logits)
        .unwrap();
    assert_eq!(watch.written, (0..30).collect::<Vec<_>>());
    assert_eq!(
        watch.queries,
        (0..30).map(|layer| (layer, 3 * 9 * 64)).collect::<Vec<_>>()
    );
    assert_eq!(logits.rows(), 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = test_model();
    let mut pool = KvPool::new(model.config(), 2);
    let good = Span {
        tokens: &[1, 2],
        start: 63,
        blocks: &[BlockId(0), BlockId(1)],
        logits: LogitsFor::Last,
    };
    let workers = workers(1);
    let mut refusal = |span| {
        let mut logits = Logits::default();
        let spans = [good, span];
        model
            .forward(&workers, &mut pool, &spans, &mut (), &mut logits)
            .unwrap_err()
    };
    assert_eq!(
        refusal(Span {
            tokens: &[],
            ..good
        }),
        ForwardError::Empty { span: 1 }
    );
    assert_eq!(
        refusal(Span {
            tokens: &[49152],
            ..good
        }),
        ForwardError::Token {
            span: 1,
            token: 49152,
            vocab: 49152
        }
    );
    assert_eq!(
        refusal(Span {
            start: 8191,
            ..good
        }),
        ForwardError::TooLong {
            span: 1,
            end: 8193,
            context: 8192
        }
    );
    assert_eq!(
        refusal(Span {
            blocks: &[BlockId(0)],
            ..good
        }),
        ForwardError::Blocks {
            span: 1,
            end: 65,
            blocks: 1
        }
    );
    assert_eq!(
        refusal(Span {
            blocks: &[BlockId(0), BlockId(2)],
            ..good
        }),
        ForwardError::NoSuchBlock {
            span: 1,
            block: 2,
            blocks: 2
        }
    );
    let mut other = model.config().clone();
    other.kv_heads = 9;
    let mut pool = KvPool::new(&other, 2);
    let error = model.forward(
        &workers,
        &mut pool,
        &[good],
        &mut (),
        &mut Logits::default(),
    );
    assert_eq!(error, Err(ForwardError::Pool));
}
