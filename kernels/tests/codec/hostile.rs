//! Whatever arrives, the decoder answers, and never panics.

use crate::common::{Case, Random, STYLES, UNTOUCHED, encode};
use lynx_kernels::{Codec, MergeError, Segment, Simd, UnitBuffer};

fn levels() -> impl Iterator<Item = Codec> {
    Simd::ALL.into_iter().filter_map(Codec::with_simd)
}

/// Merges at every cut and decodes the tail at every level; all must agree. Returns the last result.
fn decode_everywhere(case: &Case, unit: &UnitBuffer) -> Result<(), MergeError> {
    for steps in 1..=case.plan.steps() {
        let results = levels().map(|codec| {
            let mut blocks = case.empty();
            let result = codec.merge(&case.plan, &case.order, unit, steps, &mut blocks);
            (result, result.is_ok().then_some(blocks))
        });
        let results: Vec<_> = results.collect();
        assert!(
            results.iter().all(|r| *r == results[0]),
            "merge of {steps} {:?}",
            case.plan
        );
    }
    let results = levels().map(|codec| {
        let mut blocks = case.empty();
        let result = codec.decode_tail(&case.plan, &case.order, unit, &mut blocks);
        (result, result.is_ok().then_some(blocks))
    });
    let results: Vec<_> = results.collect();
    assert!(
        results.iter().all(|r| *r == results[0]),
        "tail {:?}",
        case.plan
    );
    results[0].0
}

#[test]
fn mutated_segments_are_decoded_or_refused_alike_at_every_level() {
    let mut random = Random::new(21);
    let (mut refused, mut decoded) = (0, 0);
    for i in 0..400 {
        let case = Case::random(&mut random, i % STYLES);
        let mut unit = encode(Codec::detect(), &case);
        for _ in 0..1 + random.below(3) {
            let segment = random.below(case.plan.segments());
            let bytes = unit.segment_mut(segment).unwrap();
            match random.below(6) {
                0 => bytes.truncate(random.below(bytes.len() + 1)),
                1 => bytes.extend([random.next() as u8; 3]),
                2 => bytes
                    .iter_mut()
                    .for_each(|byte| *byte = random.next() as u8),
                3 => bytes.fill([0, 0xff][random.below(2)]),
                _ if bytes.is_empty() => (),
                4 => {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                _ => {
                    let at = random.below(bytes.len().min(16));
                    bytes[at] = random.next() as u8;
                }
            }
        }
        match decode_everywhere(&case, &unit) {
            Ok(()) => decoded += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && decoded > 10, "{refused} {decoded}");
}

#[test]
fn a_truncated_segment_is_refused_by_name() {
    let mut random = Random::new(22);
    for _ in 0..50 {
        let case = Case::random(&mut random, 0);
        if case.plan.tiles().next().is_none() {
            continue;
        }
        let whole = encode(Codec::detect(), &case);
        for segment in 0..case.plan.segments() {
            let mut unit = whole.clone();
            unit.segment_mut(segment).unwrap().pop();
            let named = match segment {
                0 => Segment::Head,
                s if s <= case.plan.steps() => Segment::Step(s - 1),
                _ => Segment::Tail,
            };
            let error = decode_everywhere(&case, &unit).unwrap_err();
            assert!(
                matches!(error, MergeError::Length { segment, .. } if segment == named),
                "{error} for {named}"
            );
        }
    }
}

#[test]
fn steps_that_do_not_exist_are_refused() {
    let case = Case::random(&mut Random::new(23), 0);
    let unit = encode(Codec::detect(), &case);
    for wanted in [0, case.plan.steps() + 1, usize::MAX] {
        let result =
            Codec::detect().merge(&case.plan, &case.order, &unit, wanted, &mut case.empty());
        assert!(matches!(result, Err(MergeError::Steps { .. })));
    }
}

#[test]
fn a_merge_needs_only_the_steps_it_is_asked_for() {
    let case = Case::random(&mut Random::new(24), 0);
    let mut unit = encode(Codec::detect(), &case);
    unit.steps.truncate(1);
    unit.tail.clear();
    let mut blocks = case.empty();
    Codec::detect()
        .merge(&case.plan, &case.order, &unit, 1, &mut blocks)
        .unwrap();
    assert!(case.values(&blocks).all(|(_, merged)| merged != UNTOUCHED));
}
