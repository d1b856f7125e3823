//! Tiny models of other shapes and storage types than the real one.

use std::num::NonZeroUsize;

use super::naive;
use super::sequence::{Sequence, assert_same};
use super::workers;
use crate::gguf::Gguf;
use crate::model::build::Tiny;
use crate::noise::Noise;
use crate::quant::TensorType;
use crate::simd::Level;
use crate::{Model, TokenId, Workers};

fn tokens() -> Vec<TokenId> {
    let mut noise = Noise(7);
    (0..100)
        .map(|_| TokenId::try_from(noise.below(Tiny::VOCAB)).unwrap())
        .collect()
}

/// All storage types, with heads of one, two and three panels, alone and shared.
fn shapes() -> impl Iterator<Item = Tiny> {
    let heads = [(4, 2, 64), (2, 2, 128), (4, 1, 192), (4, 4, 64)];
    TensorType::ALL
        .into_iter()
        .zip(heads.into_iter().cycle())
        .enumerate()
        .map(|(index, (kind, (heads, kv_heads, head_dim)))| Tiny {
            kind,
            heads,
            kv_heads,
            head_dim,
            untied: index % 2 == 0,
        })
}

#[test]
fn all_types_and_shapes_give_the_same_bits_in_pieces_and_whole_on_every_level() {
    let tokens = tokens();
    for tiny in shapes() {
        let gguf = Gguf::from_bytes(tiny.file().bytes()).unwrap();
        let model = Model::from_gguf(&gguf).unwrap();
        let mut whole = Sequence::new(&model, 2);
        let expected = whole.feed(&workers(2), &tokens);
        for (level, cut) in Level::available().into_iter().zip([1, 9, 40]) {
            let workers = Workers::with_level(NonZeroUsize::MIN, level).unwrap();
            let mut pieces = Sequence::new(&model, 2);
            let found: Vec<_> = tokens
                .chunks(cut)
                .flat_map(|part| pieces.feed(&workers, part))
                .collect();
            assert_same(
                &expected,
                &found,
                &format!("{}, {level}, pieces of {cut}", tiny.kind),
            );
            assert_eq!(whole.cache(), pieces.cache());
        }
    }
}

#[test]
fn all_types_and_shapes_agree_with_the_architecture_written_down_naively() {
    let tokens = &tokens();
    for tiny in shapes() {
        let gguf = Gguf::from_bytes(tiny.file().bytes()).unwrap();
        let model = Model::from_gguf(&gguf).unwrap();
        let found = Sequence::new(&model, 2).feed(&workers(2), tokens);
        let expected = naive::logits(&gguf, tokens);
        let size = expected
            .iter()
            .flatten()
            .fold(0.0, |most: f64, x| most.max(x.abs()));
        let difference = |(a, b): (&f64, &f32)| (a - f64::from(*b)).abs();
        let pairs = expected.iter().flatten().zip(found.iter().flatten());
        let most = pairs.map(difference).fold(0.0, f64::max);
        // A key or value that lies between two 16-bit numbers may be rounded the other way.
        assert!(
            most < size * 0.005,
            "{}: off by {most} of {size}",
            tiny.kind
        );
    }
}
