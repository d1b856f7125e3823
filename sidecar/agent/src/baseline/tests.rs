//! The baselines keep what they promise, on any bits and any shape.

use super::*;

const LAYOUTS: [Layout; 2] = [Layout::TokenMajor, Layout::ChannelMajor];

fn bf16(x: f32) -> u16 {
    half::bf16::from_f32(x).to_bits()
}

/// Where element (token, channel) lies.
fn place(shape: TileShape, token: usize, channel: usize) -> usize {
    match shape.layout {
        Layout::TokenMajor => token * shape.head_dim + channel,
        Layout::ChannelMajor => channel * BLOCK_TOKENS + token,
    }
}

/// A smooth tile whose tokens differ in size by orders of magnitude.
fn tile(shape: TileShape) -> Vec<u16> {
    let mut values = vec![0; shape.span()];
    for token in 0..shape.tokens {
        for channel in 0..shape.head_dim {
            let size = [0.01, 1.0, 30.0][token % 3];
            let wave = f32::from(u16::try_from(channel * 7 + token).unwrap()).sin();
            values[place(shape, token, channel)] = bf16(size * wave);
        }
    }
    values
}

fn round_trip(baseline: Baseline, shape: TileShape, values: &[u16]) -> Vec<u16> {
    let mut bytes = vec![0xaa; 3];
    baseline.encode(shape, values, &mut bytes).unwrap();
    assert_eq!(bytes.len() - 3, baseline.encoded_len(shape));
    let mut back = vec![0xdead; shape.span()];
    baseline.decode(shape, &bytes[3..], &mut back).unwrap();
    back
}

#[test]
fn bf16_comes_back_bit_for_bit() {
    for layout in LAYOUTS {
        for (tokens, head_dim) in [(64, 64), (1, 1), (17, 5)] {
            let shape = TileShape::new(layout, tokens, head_dim).unwrap();
            let mut values = tile(shape);
            values[0] = 0x7fc1; // A NaN with a payload.
            let back = round_trip(Baseline::Bf16, shape, &values);
            for token in 0..tokens {
                for channel in 0..head_dim {
                    let at = place(shape, token, channel);
                    assert_eq!(back[at], values[at]);
                }
            }
        }
    }
}

#[test]
fn the_error_stays_within_half_a_step_of_each_tokens_own_scale() {
    for layout in LAYOUTS {
        for (baseline, limit) in [(Baseline::Int8, 127.0), (Baseline::Int4, 7.0)] {
            for (tokens, head_dim) in [(64, 64), (1, 8), (17, 5)] {
                let shape = TileShape::new(layout, tokens, head_dim).unwrap();
                let values = tile(shape);
                let back = round_trip(baseline, shape, &values);
                for token in 0..tokens {
                    let of_token = |values: &[u16]| -> Vec<f32> {
                        let places = (0..head_dim).map(|c| place(shape, token, c));
                        places.map(|at| to_f32(values[at])).collect()
                    };
                    let (before, after) = (of_token(&values), of_token(&back));
                    let most = before.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                    // Half a step, the rounding of the scale to f16 and that of the result to BF16.
                    let bound = most * (0.5 / limit + 1.0 / 2048.0 + 1.0 / 256.0);
                    for (before, after) in before.iter().zip(&after) {
                        assert!((before - after).abs() <= bound, "{before} became {after}");
                    }
                }
            }
        }
    }
}

#[test]
fn both_layouts_encode_the_same_values_to_the_same_numbers() {
    let by_token = TileShape::new(Layout::TokenMajor, 33, 16).unwrap();
    let by_channel = TileShape::new(Layout::ChannelMajor, 33, 16).unwrap();
    for baseline in Baseline::ALL {
        let left = round_trip(baseline, by_token, &tile(by_token));
        let right = round_trip(baseline, by_channel, &tile(by_channel));
        for token in 0..33 {
            for channel in 0..16 {
                assert_eq!(
                    left[place(by_token, token, channel)],
                    right[place(by_channel, token, channel)]
                );
            }
        }
    }
}

#[test]
fn unused_columns_of_a_partial_block_stay_untouched() {
    let shape = TileShape::new(Layout::ChannelMajor, 3, 4).unwrap();
    for baseline in Baseline::ALL {
        let back = round_trip(baseline, shape, &tile(shape));
        for row in back.chunks_exact(BLOCK_TOKENS) {
            assert!(row[3..].iter().all(|&x| x == 0xdead));
        }
    }
}

#[test]
fn nan_and_infinity_do_not_spoil_their_token() {
    let shape = TileShape::new(Layout::TokenMajor, 2, 4).unwrap();
    let (nan, infinity) = (bf16(f32::NAN), bf16(f32::INFINITY));
    let values = [
        nan,
        infinity,
        bf16(2.0),
        bf16(f32::NEG_INFINITY),
        nan,
        nan,
        infinity,
        nan,
    ];
    for baseline in [Baseline::Int8, Baseline::Int4] {
        let back = round_trip(baseline, shape, &values);
        let back: Vec<f32> = back.iter().map(|&x| to_f32(x)).collect();
        assert_eq!(back[0], 0.0);
        assert_eq!(back[1], back[2]);
        assert_eq!(back[3], -back[2]);
        assert!((back[2] - 2.0).abs() < 0.02, "{}", back[2]);
        assert_eq!(back[4..], [0.0; 4]);
    }
}

#[test]
fn sizes_are_what_the_formats_are_named_for() {
    let shape = TileShape::new(Layout::ChannelMajor, 64, 64).unwrap();
    assert_eq!(Baseline::Bf16.encoded_len(shape), 8192);
    assert_eq!(Baseline::Int8.encoded_len(shape), 4096 + 128);
    assert_eq!(Baseline::Int4.encoded_len(shape), 2048 + 128);
}

#[test]
fn shapes_that_are_none_are_refused() {
    for (tokens, head_dim) in [(0, 64), (65, 64), (64, 0), (64, usize::MAX)] {
        assert_eq!(TileShape::new(Layout::TokenMajor, tokens, head_dim), None);
    }
}

#[test]
fn wrong_lengths_are_refused_and_change_nothing() {
    let shape = TileShape::new(Layout::TokenMajor, 8, 8).unwrap();
    for baseline in Baseline::ALL {
        let mut out = vec![7];
        assert!(baseline.encode(shape, &[0; 63], &mut out).is_err());
        assert_eq!(out, [7]);

        let wanted = baseline.encoded_len(shape);
        let mut values = [5_u16; 64];
        for got in [0, 1, wanted - 1, wanted + 1] {
            let refused = baseline.decode(shape, &vec![0; got], &mut values);
            assert_eq!(refused, Err(DecodeError::Length { wanted, got }));
        }
        let refused = baseline.decode(shape, &vec![0; wanted], &mut values[..63]);
        assert_eq!(
            refused,
            Err(DecodeError::Room {
                wanted: 64,
                got: 63
            })
        );
        assert_eq!(values, [5; 64]);
    }
}

#[test]
fn a_scale_that_no_encoder_writes_is_refused() {
    let shape = TileShape::new(Layout::TokenMajor, 2, 2).unwrap();
    for scale in [f16::NAN, f16::INFINITY, f16::from_f32(-1.0)] {
        let mut bytes = vec![0; Baseline::Int8.encoded_len(shape)];
        bytes[2..4].copy_from_slice(&scale.to_le_bytes());
        let refused = Baseline::Int8.decode(shape, &bytes, &mut [0; 4]);
        assert_eq!(refused, Err(DecodeError::Scale { token: 1 }));
    }
}

#[test]
fn any_bits_in_any_shape_survive_encoding_and_decoding() {
    bolero::check!()
        .with_type::<(bool, u8, u8, Vec<u16>, Vec<u8>)>()
        .for_each(|(by_token, tokens, head_dim, seed, bytes)| {
            let layout = LAYOUTS[usize::from(*by_token)];
            let (tokens, head_dim) = (usize::from(*tokens), usize::from(*head_dim));
            let Some(shape) = TileShape::new(layout, tokens, head_dim) else {
                return;
            };
            let values: Vec<u16> = seed.iter().copied().cycle().take(shape.span()).collect();
            for baseline in Baseline::ALL {
                let mut back = vec![0; shape.span()];
                if baseline.decode(shape, bytes, &mut back).is_ok() {
                    assert_eq!(bytes.len(), baseline.encoded_len(shape));
                }
                if values.len() == shape.span() {
                    round_trip(baseline, shape, &values);
                }
            }
        });
}
