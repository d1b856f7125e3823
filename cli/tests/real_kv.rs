//! The codec on the KV of a real model: random numbers have no channels that differ by orders of magnitude.
#![cfg(test)]

mod support;

use lynx::chat::Chat;
use lynx::lab::Lab;
use lynx_kernels::{
    Blocks, Codec, Cuts, LayerOrder, Profile, PromptPlan, RawTokens, Simd, TileSource, UnitBuffer,
    UnitPlan,
};

const TOKENS: usize = 300;
const PROFILE: &str = include_str!("../../profiles/smollm2-135m-instruct.json");

/// What a codec makes of a unit: its segments, and what comes of every cut and of the tail.
fn all_of(
    codec: Codec,
    plan: &UnitPlan,
    order: &LayerOrder,
    source: &impl TileSource,
) -> (UnitBuffer, Vec<Blocks>) {
    let mut unit = UnitBuffer::default();
    unit.reserve(plan);
    codec.split(plan, order, source, &mut unit);
    codec.encode_tail(plan, source, &mut unit.tail);
    let empty = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
    let mut merged = Vec::new();
    for steps in 1..=plan.steps() {
        let mut blocks = empty.clone();
        codec.merge(plan, order, &unit, steps, &mut blocks).unwrap();
        merged.push(blocks);
    }
    let mut exact = empty;
    codec.decode_tail(plan, order, &unit, &mut exact).unwrap();
    merged.push(exact);
    (unit, merged)
}

fn assert_equal_bits(plan: &UnitPlan, source: &impl TileSource, exact: &Blocks) {
    for position in plan.tokens() {
        for head in 0..plan.shape().kv_heads {
            let rows = source.rows(head, position as usize / 64);
            let origin = exact.index(position / 64 * 64, head, 0);
            for channel in 0..plan.shape().head_dim {
                let place = exact.index(position, head, channel);
                let (before, after) = (rows.data[place - origin], exact.data()[place]);
                assert_eq!(
                    before, after,
                    "position {position}, head {head}, channel {channel}"
                );
            }
        }
    }
}

#[test]
fn every_simd_level_gives_the_scalar_bits_on_real_kv_and_the_tail_restores_them() {
    let path = support::model();
    let chat = Chat::open(&path).unwrap();
    let text = include_str!("../../profiles/calibration/code.py");
    let mut tokens = chat.tokenizer().prompt(text).unwrap();
    tokens.truncate(TOKENS);
    let mut lab = Lab::open(&path, 2, TOKENS).unwrap();
    lab.prefill(&tokens, &mut (), |_| {}).unwrap();
    let profile = Profile::from_json(PROFILE).unwrap();
    let scalar = Codec::with_simd(Simd::Scalar).unwrap();
    let raw = RawTokens::for_prompt(300);
    for (k, v) in [("4", 4), ("3.5", 6)] {
        let cuts = Cuts::new(k.parse().unwrap(), v).unwrap();
        let plan = PromptPlan::new(lab.shape(), 0..300, 256, raw, cuts).unwrap();
        // Some layers of many: the scalar codec takes its time.
        for unit in plan.units().filter(|unit| unit.layer % 7 == 0) {
            let order = profile.layer(unit.layer);
            let (source, _) = lab.layer(unit.layer, unit.plan.kind());
            let truth = all_of(scalar, unit.plan, order, &source);
            for simd in [Simd::Avx2, Simd::Avx512] {
                let Some(codec) = Codec::with_simd(simd) else {
                    continue;
                };
                let found = all_of(codec, unit.plan, order, &source);
                assert!(
                    found == truth,
                    "{simd:?}, layer {}, {:?}",
                    unit.layer,
                    unit.plan.kind()
                );
            }
            let exact = truth.1.last().unwrap();
            assert_equal_bits(unit.plan, &source, exact);
        }
    }
}
