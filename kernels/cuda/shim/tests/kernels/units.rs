//! Random and adversarial units: every build, layout and page size, every cut, several orders of lanes.

use lynx_cuda_shim::variants;
use lynx_gpu::Pages;
use lynx_kernels::{Blocks, Codec, Cuts, Kind, KvShape, RawTokens, Simd, UnitBuffer};
use lynx_units::Width;

use crate::common::{Case, Random, STYLES};
use crate::device::{Build, Cache, Format, merge, restore, split};

const BF16: Format = Format {
    to_cache: |bits| bits,
};

/// As the kernels store it: saturated where BF16 is finite.
const FP16: Format = Format {
    to_cache: |bits| {
        let x = half::bf16::from_bits(bits).to_f32();
        if x.is_nan() {
            0x7fff
        } else if x.is_infinite() {
            half::f16::from_f32(x).to_bits()
        } else {
            half::f16::from_f32(x.clamp(-65504.0, 65504.0)).to_bits()
        }
    },
};

/// Kind, channels, whole blocks only, FP16, and the only number of planes that the build merges.
struct Variant {
    kind: Kind,
    channels: usize,
    whole: bool,
    half: bool,
    planes: Option<u8>,
}

fn parse(name: &str) -> Variant {
    let mut parts = name.split('-');
    let first = parts.next().unwrap();
    let rest: Vec<_> = parts.collect();
    Variant {
        kind: if first.starts_with('v') {
            Kind::V
        } else {
            Kind::K
        },
        channels: first[1..].parse().unwrap(),
        whole: rest.contains(&"whole"),
        half: rest.contains(&"fp16"),
        planes: rest.last().and_then(|last| last.parse().ok()),
    }
}

impl Variant {
    fn case(&self, random: &mut Random, style: usize, heads: usize) -> Case {
        let shape = KvShape {
            layers: 1,
            kv_heads: heads,
            head_dim: self.channels,
        };
        let (tokens, raw) = if self.whole {
            let start = 64 * random.below(3) as u32;
            (
                start..start + 64 * (1 + random.below(2) as u32),
                RawTokens::none(),
            )
        } else {
            let start = random.below(130) as u32;
            let raw = match random.below(3) {
                0 => RawTokens::none(),
                1 => RawTokens::new(4, start + 60 + random.below(60) as u32),
                _ => RawTokens::new(random.below(80) as u32, start + random.below(150) as u32),
            };
            (start..start + 1 + random.below(150) as u32, raw)
        };
        let k = Width::from_eighths(8 + random.below(57) as u8).unwrap();
        let v = self.planes.unwrap_or(1 + random.below(8) as u8);
        let cuts = Cuts::new(k, v).unwrap();
        let mut case = Case::new(random, style, (shape, self.kind, tokens), raw, cuts);
        if self.half {
            // The values that a cache of FP16 has, as BF16.
            for bits in case.blocks.data_mut() {
                *bits = from_half((FP16.to_cache)(*bits));
            }
        }
        case
    }

    fn format(&self) -> Format {
        if self.half { FP16 } else { BF16 }
    }
}

fn from_half(bits: u16) -> u16 {
    let x = half::f16::from_bits(bits).to_f32();
    if x.is_nan() {
        0x7fff
    } else {
        half::bf16::from_f32(x).to_bits()
    }
}

fn pages(random: &mut Random, shape: KvShape) -> Pages {
    let tokens = 16 << random.below(4);
    let pages = match random.below(2) {
        0 => Pages::nhd(shape, tokens),
        _ => Pages::hnd(shape, tokens),
    };
    pages.unwrap().every(1 + random.below(2) as u64)
}

/// Splits and merges a case and a second unit of its plan, and compares everything with the scalar codec.
fn check(build: Build<'_>, variant: &Variant, cases: &[Case], pages: Pages, random: &mut Random) {
    let scalar = Codec::with_simd(Simd::Scalar).unwrap();
    let (plan, order) = (&cases[0].plan, &cases[0].order);
    let mut expected = vec![UnitBuffer::default(); cases.len()];
    let mut caches = Vec::new();
    for (case, expected) in cases.iter().zip(&mut expected) {
        scalar.split(plan, order, &case.blocks, expected);
        scalar.encode_tail(plan, &case.blocks, &mut expected.tail);
        let mut cache = Cache::empty(plan, pages, random);
        cache.fill(plan, &case.blocks, variant.format());
        caches.push(cache);
    }
    let found = split(build, plan, order, &mut caches).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        same(&found.head, &expected.head, || {
            format!("{build:?} {plan:?}: the head")
        });
        same(&found.tail, &expected.tail, || {
            format!("{build:?} {plan:?}: the tail")
        });
        for (step, (found, expected)) in found.steps.iter().zip(&expected.steps).enumerate() {
            same(found, expected, || {
                format!("{build:?} {plan:?}: step {step}")
            });
        }
    }
    let mut caches: Vec<_> = cases
        .iter()
        .map(|_| Cache::empty(plan, pages, random))
        .collect();
    let found = restore(build, plan, order, (&expected, &mut caches)).unwrap();
    for (status, (case, cache)) in found.iter().zip(cases.iter().zip(&caches)) {
        assert_eq!((status.refusal(), status.unfit), (None, u32::MAX));
        let what = format!("{build:?} {plan:?} {pages:?}, restored");
        cache.check(plan, &case.blocks, variant.format(), &what);
    }
    let steps = if variant.planes.is_some() {
        1..=1
    } else {
        1..=plan.steps()
    };
    for steps in steps {
        let mut caches: Vec<_> = cases
            .iter()
            .map(|_| Cache::empty(plan, pages, random))
            .collect();
        let found = merge(build, plan, order, steps, (&expected, &mut caches)).unwrap();
        assert!(found.iter().all(|status| status.refusal().is_none()));
        for (unit, cache) in expected.iter().zip(&caches) {
            let mut merged = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
            scalar.merge(plan, order, unit, steps, &mut merged).unwrap();
            let what = format!("{build:?} {plan:?} {pages:?}, {steps} steps");
            cache.check(plan, &merged, variant.format(), &what);
        }
    }
}

fn same(found: &[u8], expected: &[u8], what: impl Fn() -> String) {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found.len() == expected.len() && differs.is_none(),
        "{}: {} bytes instead of {}, the first other one is {differs:?}",
        what(),
        found.len(),
        expected.len()
    );
}

/// Every style of values once for the builds whose name passes.
fn check_all(seed: u64, wanted: impl Fn(&str) -> bool) {
    let mut random = Random::new(seed);
    let mut checked = 0;
    for name in variants().filter(|name| wanted(name)) {
        let variant = parse(name);
        for style in 0..STYLES {
            let heads = if variant.channels > 128 {
                1
            } else {
                1 + random.below(2)
            };
            let case = variant.case(&mut random, style, heads);
            let pages = pages(&mut random, case.plan.shape());
            let build = Build {
                name,
                seed: style as u64,
            };
            check(build, &variant, &[case], pages, &mut random);
            checked += 1;
        }
    }
    assert!(checked >= 2 * STYLES);
}

#[test]
fn k_for_any_tokens_is_what_the_scalar_codec_makes() {
    check_all(1, |name| {
        name.starts_with(['k', 'K']) && !name.contains("whole")
    });
}

#[test]
fn v_for_any_tokens_is_what_the_scalar_codec_makes() {
    check_all(2, |name| name.starts_with('v') && !name.contains("whole"));
}

#[test]
fn whole_blocks_are_what_the_scalar_codec_makes() {
    check_all(3, |name| name.contains("whole"));
}

#[test]
fn one_launch_codes_several_units() {
    let mut random = Random::new(4);
    for name in ["k64", "v64", "k64-whole", "v128-whole"] {
        let variant = parse(name);
        let first = variant.case(&mut random, 9, 2);
        // Of the second only the values count.
        let (plan, raw) = (&first.plan, RawTokens::none());
        let shape = (plan.shape(), plan.kind(), plan.tokens());
        let second = Case::new(&mut random, 0, shape, raw, plan.cuts());
        let pages = pages(&mut random, first.plan.shape());
        check(
            Build { name, seed: 7 },
            &variant,
            &[first, second],
            pages,
            &mut random,
        );
    }
}

#[test]
fn latent_vectors_are_v_of_nine_heads() {
    let mut random = Random::new(5);
    for (name, style) in [("v64", 0), ("v64", 9), ("v64-whole", 6)] {
        let variant = parse(name);
        let case = variant.case(&mut random, style, 9);
        let latent = Pages::nhd(case.plan.shape(), 64).unwrap();
        assert_eq!((latent.token_stride, latent.head_stride), (576, 64));
        check(
            Build { name, seed: 3 },
            &variant,
            &[case],
            latent,
            &mut random,
        );
    }
}

#[test]
fn a_tail_that_does_not_fit_its_codes_is_told() {
    let mut random = Random::new(9);
    let scalar = Codec::with_simd(Simd::Scalar).unwrap();
    for name in ["k64-whole", "v128-whole"] {
        let variant = parse(name);
        let case = variant.case(&mut random, 0, 2);
        let mut unit = UnitBuffer::default();
        scalar.split(&case.plan, &case.order, &case.blocks, &mut unit);
        scalar.encode_tail(&case.plan, &case.blocks, &mut unit.tail);
        let pages = pages(&mut random, case.plan.shape());
        let build = Build { name, seed: 2 };
        let last = case.plan.tiles().count() as u32 - 1;
        // A byte more in tile 1's section A, a byte less in its B, a byte too few or too many in all, an absurd table.
        type Damage = fn(&mut Vec<u8>);
        let damages: [(Damage, u32); 5] = [
            (|tail| tail[4] = tail[4].wrapping_add(1), 1),
            (|tail| tail[6] = tail[6].wrapping_sub(1), 1),
            (|tail| tail.truncate(tail.len() - 1), last),
            (|tail| tail.push(0), last),
            (|tail| tail[..8].fill(0xff), 0),
        ];
        for (damage, tile) in damages {
            let mut unit = unit.clone();
            damage(&mut unit.tail);
            let mut caches = [Cache::empty(&case.plan, pages, &mut random)];
            let memory = (&[unit][..], &mut caches[..]);
            let found = restore(build, &case.plan, &case.order, memory).unwrap();
            assert_eq!(found[0].unfit, tile, "{name}");
        }
    }
}

#[test]
fn impossible_parameters_are_told() {
    let mut random = Random::new(6);
    for name in ["k64", "v64-whole"] {
        let variant = parse(name);
        let case = variant.case(&mut random, 0, 2);
        let mut case = case;
        while case.plan.tiles().count() < 2 {
            case = variant.case(&mut random, 0, 2);
        }
        let pages = pages(&mut random, case.plan.shape());
        let mut unit = UnitBuffer::default();
        let scalar = Codec::with_simd(Simd::Scalar).unwrap();
        scalar.split(&case.plan, &case.order, &case.blocks, &mut unit);
        let groups = match variant.kind {
            Kind::K => variant.channels,
            Kind::V => case.plan.tiles().next().unwrap().tokens,
        };
        // Group 5 of tile 1: an infinite step.
        unit.head[(groups + 5) * 4 + 2..][..2].copy_from_slice(&0x7f80u16.to_le_bytes());
        let mut caches = [Cache::empty(&case.plan, pages, &mut random)];
        let build = Build { name, seed: 2 };
        let found = merge(build, &case.plan, &case.order, 1, (&[unit], &mut caches)).unwrap();
        assert_eq!(found[0].refusal(), Some((1, 5)), "{name}");
    }
}
