//! What goes in comes out: exactly with the tail, within its cell at every cut, and the same at every SIMD level.

use crate::common::{Case, Random, STYLES, UNTOUCHED, encode, value};
use lynx_kernels::{Blocks, Codec, Kind, KvShape, RawTokens, Simd, UnitBuffer, UnitPlan};

const CASES: usize = 600;

fn cases() -> impl Iterator<Item = Case> {
    let mut random = Random::new(11);
    (0..CASES).map(move |i| Case::random(&mut random, i % STYLES))
}

fn scalar() -> Codec {
    Codec::with_simd(Simd::Scalar).unwrap()
}

fn merged(codec: Codec, case: &Case, unit: &UnitBuffer, steps: usize) -> Blocks {
    let mut blocks = case.empty();
    codec
        .merge(&case.plan, &case.order, unit, steps, &mut blocks)
        .unwrap();
    blocks
}

fn exact(codec: Codec, case: &Case, unit: &UnitBuffer) -> Blocks {
    let mut blocks = case.empty();
    codec
        .decode_tail(&case.plan, &case.order, unit, &mut blocks)
        .unwrap();
    blocks
}

#[test]
fn the_tail_makes_every_value_exact() {
    for case in cases() {
        let unit = encode(scalar(), &case);
        let back = exact(scalar(), &case, &unit);
        assert!(case.values(&back).all(|(a, b)| a == b), "{:?}", case.plan);
    }
}

#[test]
fn only_the_units_own_tokens_are_written() {
    for case in cases().take(100) {
        let back = exact(Codec::detect(), &case, &encode(Codec::detect(), &case));
        let written = back
            .data()
            .iter()
            .filter(|bits| **bits != UNTOUCHED)
            .count();
        assert_eq!(written, case.plan.bf16_bytes() / 2);
    }
}

#[test]
fn segments_have_the_planned_lengths() {
    for case in cases() {
        let unit = encode(scalar(), &case);
        let lens: Vec<_> = unit.steps.iter().map(Vec::len).collect();
        let planned: Vec<_> = (0..case.plan.steps())
            .map(|s| case.plan.step_bytes(s))
            .collect();
        assert_eq!(lens, planned);
        assert!((case.plan.head_bytes()..=case.plan.head_bound()).contains(&unit.head.len()));
        assert!(unit.tail.len() <= case.plan.tail_bound());
        for index in 0..case.plan.segments() {
            assert!(unit.segment(index).unwrap().len() <= case.plan.segment_bound(index));
        }
        assert!(unit.segment(case.plan.segments()).is_none());
    }
}

#[test]
fn every_further_step_brings_the_values_closer() {
    let mut random = Random::new(12);
    for _ in 0..60 {
        let case = Case::random(&mut random, 0);
        let unit = encode(scalar(), &case);
        let mut last = f64::INFINITY;
        for steps in 1..=case.plan.steps() {
            let merged = merged(scalar(), &case, &unit, steps);
            let error: f64 = case
                .values(&merged)
                .map(|(a, b)| f64::from(value(a) - value(b)).powi(2))
                .sum();
            assert!(error <= last * 1.2, "step {steps}: {error} after {last}");
            last = error;
        }
        let count = case.plan.bf16_bytes() as f64 / 2.0;
        assert!(last / count < 1e-3, "{}", last / count);
    }
}

#[test]
fn raw_tokens_are_exact_with_the_anchor() {
    for case in cases().take(200) {
        let unit = encode(scalar(), &case);
        let anchor = merged(scalar(), &case, &unit, 1);
        for position in case.plan.raw_tokens().flatten() {
            for head in 0..case.plan.shape().kv_heads {
                for channel in 0..case.plan.shape().head_dim {
                    let index = anchor.index(position, head, channel);
                    assert_eq!(anchor.data()[index], case.blocks.data()[index]);
                }
            }
        }
    }
}

#[test]
fn every_simd_level_is_bit_equal_to_scalar() {
    let levels: Vec<Codec> = Simd::ALL.into_iter().filter_map(Codec::with_simd).collect();
    for case in cases() {
        let truth = encode(scalar(), &case);
        let steps: Vec<Blocks> = (1..=case.plan.steps())
            .map(|s| merged(scalar(), &case, &truth, s))
            .collect();
        for &codec in &levels {
            let unit = encode(codec, &case);
            assert!(unit.head == truth.head, "head {codec:?} {:?}", case.plan);
            assert!(unit.steps == truth.steps, "steps {codec:?} {:?}", case.plan);
            assert!(unit.tail == truth.tail, "tail {codec:?} {:?}", case.plan);
            for (i, expected) in steps.iter().enumerate() {
                let merged = merged(codec, &case, &truth, i + 1);
                assert!(
                    merged == *expected,
                    "{codec:?} merge of {} {:?}",
                    i + 1,
                    case.plan
                );
            }
            let back = exact(codec, &case, &truth);
            assert!(
                case.values(&back).all(|(a, b)| a == b),
                "{codec:?} {:?}",
                case.plan
            );
        }
    }
}

#[test]
fn a_buffer_used_before_gives_the_same_segments_without_growing() {
    let mut random = Random::new(13);
    let mut unit = UnitBuffer::default();
    for i in 0..50 {
        let case = Case::random(&mut random, i % STYLES);
        unit.reserve(&case.plan);
        let capacities: Vec<_> = unit.steps.iter().map(Vec::capacity).collect();
        let (head, tail) = (unit.head.capacity(), unit.tail.capacity());
        Codec::detect().split(&case.plan, &case.order, &case.blocks, &mut unit);
        Codec::detect().encode_tail(&case.plan, &case.blocks, &mut unit.tail);
        assert_eq!(unit, encode(Codec::detect(), &case));
        assert_eq!(
            capacities,
            unit.steps.iter().map(Vec::capacity).collect::<Vec<_>>()
        );
        assert_eq!((head, tail), (unit.head.capacity(), unit.tail.capacity()));
    }
}

#[test]
fn few_tokens_in_a_block_travel_raw() {
    let shape = KvShape {
        layers: 1,
        kv_heads: 1,
        head_dim: 64,
    };
    let cuts = lynx_kernels::Cuts::new("4".parse().unwrap(), 4).unwrap();
    let plan = UnitPlan::new(shape, Kind::K, 49..80, RawTokens::none(), cuts).unwrap();
    assert!(plan.raw_tokens().eq(std::iter::once(49..64)));
    let tiles: Vec<_> = plan.tiles().map(|t| (t.block, t.first, t.tokens)).collect();
    assert_eq!(tiles, [(1, 0, 16)]);
    let prompt = UnitPlan::new(shape, Kind::V, 0..512, RawTokens::for_prompt(512), cuts).unwrap();
    assert_eq!(prompt.raw_tokens().collect::<Vec<_>>(), [0..4, 504..512]);
    assert_eq!(prompt.tiles().map(|t| t.tokens).sum::<usize>(), 500);
}
