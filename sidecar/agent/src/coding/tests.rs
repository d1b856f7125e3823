//! What a descriptor means.

use super::*;

const SHAPE: KvShape = KvShape {
    layers: 2,
    kv_heads: 2,
    head_dim: 64,
};

fn descriptor(method: Method, eighths: u32, v: u32) -> Descriptor {
    Descriptor {
        method: v1::Method::from(method).into(),
        prompt_tokens: 700,
        from_token: 64,
        anchor_k_eighths: eighths,
        anchor_v_bits: v,
        profile: String::new(),
    }
}

#[test]
fn levels_mean_the_same_for_k_and_v() {
    let coding = Coding::new(SHAPE, &descriptor(Method::LynxExact, 28, 6)).unwrap();
    // K: 3.5, 4, 5, 6, 7, 8 bits; V: 6, 7, 8 and then nothing.
    assert_eq!(coding.transfer().segments(), 1 + 6 + 1);
    assert_eq!(coding.last_level(), 6);
    let v = lynx_units::UnitIndex(1);
    let bound = |segment| {
        coding
            .transfer()
            .bound(v, lynx_units::SegmentIndex(segment))
    };
    assert_eq!([bound(4), bound(5), bound(6)], [Some(0); 3]);
    assert!(bound(3) > Some(0) && bound(7) > Some(0));
}

#[test]
fn a_unit_is_merged_as_far_as_its_segments_reach() {
    let coding = Coding::new(SHAPE, &descriptor(Method::LynxExact, 32, 4)).unwrap();
    let mut received = coding.receive();
    let mut seen = Vec::new();
    for segment in [1, 0, 3, 2, 4, 5, 6] {
        received.take(segment, vec![0], 0).unwrap();
        seen.push(received.merge_next());
        received.merged();
        assert_eq!(received.merge_next(), Next::Nothing);
    }
    use Next::{Exact, Nothing, Steps};
    assert_eq!(
        seen,
        [
            Nothing,
            Steps(1),
            Nothing,
            Steps(3),
            Steps(4),
            Steps(5),
            Exact
        ]
    );
    assert!(received.take(7, Vec::new(), 0).is_err());
}

#[test]
fn a_baseline_is_one_segment() {
    let coding = Coding::new(SHAPE, &descriptor(Method::Int4, 32, 4)).unwrap();
    assert_eq!((coding.transfer().segments(), coding.last_level()), (1, 0));
    let mut received = coding.receive();
    assert_eq!(received.merge_next(), Next::Nothing);
    received.take(0, vec![0], 0).unwrap();
    assert_eq!(received.merge_next(), Next::Exact);
}

#[test]
fn impossible_descriptors_are_refused() {
    for (eighths, v) in [(7, 4), (65, 4), (300, 4), (32, 0), (32, 9), (32, 260)] {
        assert!(Coding::new(SHAPE, &descriptor(Method::LynxExact, eighths, v)).is_err());
    }
    let inside_a_block = Descriptor {
        from_token: 65,
        ..descriptor(Method::LynxExact, 32, 4)
    };
    assert!(Coding::new(SHAPE, &inside_a_block).is_err());
    let nothing = Descriptor {
        from_token: 704,
        ..descriptor(Method::LynxExact, 32, 4)
    };
    assert!(Coding::new(SHAPE, &nothing).is_err());
}

/// A segment comes, or what can be merged is.
#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Op {
    Take(u8),
    Merged,
}

/// Against a list of what is here and how much of it was merged.
#[test]
fn whatever_order_segments_come_in_what_is_merged_next_is_the_longest_run_of_them() {
    let coding = Coding::new(SHAPE, &descriptor(Method::LynxExact, 32, 4)).unwrap();
    let (segments, steps) = (coding.transfer().segments(), coding.steps);
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut received = coding.receive();
        let mut here = vec![false; segments];
        let mut merged = 0;
        for op in ops {
            match op {
                Op::Take(index) => {
                    let index = usize::from(*index) % (segments + 1);
                    let taken = received.take(index, vec![1], 0);
                    assert_eq!(taken.is_ok(), index < segments);
                    here.iter_mut()
                        .skip(index)
                        .take(1)
                        .for_each(|it| *it = true);
                }
                Op::Merged => {
                    received.merged();
                    merged = here.iter().take_while(|it| **it).count();
                }
            }
            let run = here.iter().take_while(|it| **it).count();
            // The head alone is nothing, and nothing follows the exact values.
            let expected = match run {
                _ if run == merged || run < 2 => Next::Nothing,
                _ if run == segments => Next::Exact,
                run => Next::Steps((run - 1).min(steps)),
            };
            assert_eq!(received.merge_next(), expected, "{op:?}");
        }
    });
}

#[test]
fn a_prompt_of_billions_of_tokens_is_refused_before_a_plan_is_made() {
    let mut vast = descriptor(Method::Int8, 32, 4);
    vast.prompt_tokens = u32::MAX;
    let refused = Coding::new(SHAPE, &vast);
    assert!(matches!(refused, Err(CodingError::TooLong)));
}
