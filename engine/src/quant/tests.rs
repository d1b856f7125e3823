use half::f16;

use super::TensorType;
use crate::noise::Noise;

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Bit `i` of a run of bytes.
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

/// The six-bit numbers of a K block: eight scales, eight offsets.
fn k_numbers(packed: &[u8]) -> ([f32; 8], [f32; 8]) {
    let (mut scales, mut offsets) = ([0.0; 8], [0.0; 8]);
    for i in 0..4 {
        scales[i] = f32::from(packed[i] % 64);
        offsets[i] = f32::from(packed[4 + i] % 64);
        scales[4 + i] = f32::from(packed[8 + i] % 16 + packed[i] / 64 * 16);
        offsets[4 + i] = f32::from(packed[8 + i] / 16 + packed[4 + i] / 64 * 16);
    }
    (scales, offsets)
}

/// Number `i` of a block, straight from the description of its type.
fn number(kind: TensorType, b: &[u8], i: usize) -> f32 {
    let nibble = |bytes: &[u8]| {
        if i % 32 < 16 {
            bytes[i % 16] % 16
        } else {
            bytes[i % 16] / 16
        }
    };
    let k_nibble = |bytes: &[u8]| {
        let byte = bytes[i / 64 * 32 + i % 32];
        if i % 64 < 32 { byte % 16 } else { byte / 16 }
    };
    let f = |code: u8| f32::from(code);
    match kind {
        TensorType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        TensorType::F16 => half(b, 0),
        TensorType::Bf16 => f32::from_le_bytes([0, 0, b[0], b[1]]),
        TensorType::Q4_0 => (f(nibble(&b[2..])) - 8.0) * half(b, 0),
        TensorType::Q4_1 => f(nibble(&b[4..])) * half(b, 0) + half(b, 2),
        TensorType::Q5_0 => (f(nibble(&b[6..]) + 16 * bit(&b[2..], i)) - 16.0) * half(b, 0),
        TensorType::Q5_1 => f(nibble(&b[8..]) + 16 * bit(&b[4..], i)) * half(b, 0) + half(b, 2),
        TensorType::Q8_0 => f32::from(b[2 + i].cast_signed()) * half(b, 0),
        TensorType::Q4K => {
            let (scales, offsets) = k_numbers(&b[4..]);
            half(b, 0) * scales[i / 32] * f(k_nibble(&b[16..])) - half(b, 2) * offsets[i / 32]
        }
        TensorType::Q5K => {
            let (scales, offsets) = k_numbers(&b[4..]);
            let code = f(k_nibble(&b[48..]) + 16 * (b[16 + i % 32] >> (i / 32) & 1));
            half(b, 0) * scales[i / 32] * code - half(b, 2) * offsets[i / 32]
        }
        TensorType::Q6K => {
            let (half_block, j) = (i / 128, i % 128);
            let low = b[half_block * 64 + j % 64] >> (j / 64 * 4) & 15;
            let high = b[128 + half_block * 32 + j % 32] >> (j / 32 * 2) & 3;
            let scale = half(b, 208) * f32::from(b[192 + i / 16].cast_signed());
            scale * (f(low + 16 * high) - 32.0)
        }
    }
}

#[test]
fn every_type_decodes_as_described() {
    let mut noise = Noise(1);
    for kind in TensorType::ALL {
        let shape = [1024];
        let bytes = noise.tensor(kind, &shape);
        let mut decoded = vec![0.0; 1024];
        kind.decode(&bytes, &mut decoded);
        for (i, value) in decoded.iter().enumerate() {
            let block = &bytes[i / kind.block() * kind.block_bytes()..][..kind.block_bytes()];
            assert_eq!(
                *value,
                number(kind, block, i % kind.block()),
                "{kind}, number {i}"
            );
        }
    }
}

#[test]
fn a_fused_multiply_add_gives_the_same_weight() {
    let mut noise = Noise(2);
    for kind in TensorType::ALL {
        let bytes = noise.tensor(kind, &[4096]);
        kind.groups(&bytes, |group| {
            for &code in group.codes {
                let fused = group.scale.mul_add(code.into(), group.offset);
                assert_eq!(
                    fused,
                    group.scale * f32::from(code) + group.offset,
                    "{kind}"
                );
            }
        });
    }
}

#[test]
fn a_row_of_broken_blocks_has_no_size() {
    assert_eq!(TensorType::Q4_1.bytes_for(&[64, 3]), Some(120));
    assert_eq!(TensorType::Q4_1.bytes_for(&[48, 3]), None);
    assert_eq!(TensorType::F32.bytes_for(&[usize::MAX, 8]), None);
    assert_eq!(TensorType::F32.bytes_for(&[]), None);
}
