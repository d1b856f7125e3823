use super::pack::FileRows;
use super::{Matrix, Store};
use crate::noise::Noise;
use crate::panels::{PANEL, Panels};
use crate::product::Product;
use crate::quant::TensorType;
use crate::simd::Level;

/// More outputs than a panel has, and not whole panels.
const OUTPUTS: usize = 70;
const INPUTS: usize = 256;

fn row_bytes(kind: TensorType) -> usize {
    INPUTS / kind.block() * kind.block_bytes()
}

fn packed(kind: TensorType, bytes: &[u8]) -> Matrix {
    let rows = FileRows {
        kind,
        inputs: INPUTS,
        outputs: OUTPUTS,
        bytes,
    };
    rows.pack(|output| OUTPUTS - 1 - output).unwrap()
}

/// The weights of an output, decoded from the file's row that belongs there.
fn weights(kind: TensorType, bytes: &[u8], output: usize) -> [f32; INPUTS] {
    let mut weights = [0.0; INPUTS];
    if output < OUTPUTS {
        let row = &bytes[(OUTPUTS - 1 - output) * row_bytes(kind)..][..row_bytes(kind)];
        kind.decode(row, &mut weights);
    }
    weights
}

#[test]
fn a_product_is_one_chain_of_fused_multiply_adds_on_every_level_for_any_number_of_rows() {
    let mut noise = Noise(4);
    for kind in TensorType::ALL {
        let bytes = noise.tensor(kind, &[INPUTS, OUTPUTS]);
        let matrix = packed(kind, &bytes);
        for rows in [1, 2, 3, 4, 5, 6, 7, 11, 13] {
            let mut x = Panels::default();
            x.resize(rows + 2, INPUTS);
            x.data_mut().fill_with(|| noise.floats());
            let (panel, first_row) = (rows % 2, 1);
            let mut expected = vec![[0.0_f32; PANEL]; rows];
            for output in 0..PANEL {
                let weights = weights(kind, &bytes, panel * PANEL + output);
                for (row, expected) in expected.iter_mut().enumerate() {
                    let x = x.whole_row(first_row + row).flatten();
                    expected[output] = weights
                        .iter()
                        .zip(x)
                        .fold(0.0, |sum, (w, x)| w.mul_add(*x, sum));
                }
            }
            for level in Level::available() {
                let mut y = vec![[7.0; PANEL]; rows];
                let mut wide = [[0.0; PANEL]; PANEL];
                level.run(Product {
                    matrix: &matrix,
                    panel,
                    x: &x,
                    first_row,
                    y: &mut y,
                    wide: &mut wide,
                });
                assert_eq!(y, expected, "{kind}, {rows} rows, {level}");
            }
        }
    }
}

#[test]
fn weights_stay_quantised_in_memory() {
    let mut noise = Noise(5);
    for (kind, bits) in [
        (TensorType::Q4_0, 5.0),
        (TensorType::Q4_1, 5.0),
        (TensorType::Q8_0, 8.5),
        (TensorType::Q4K, 6.0),
        (TensorType::Q6K, 10.0),
        (TensorType::F16, 16.0),
    ] {
        let bytes = noise.tensor(kind, &[INPUTS, OUTPUTS]);
        let weights = OUTPUTS.next_multiple_of(PANEL) * INPUTS;
        assert_eq!(
            packed(kind, &bytes).bytes() as f64 * 8.0 / weights as f64,
            bits,
            "{kind}"
        );
    }
}

#[test]
fn a_scale_beyond_sixteen_bits_is_kept_exactly() {
    // The offset of Q4_0 is eight times its scale, here beyond the range of a 16-bit float.
    let mut bytes = vec![0x88; row_bytes(TensorType::Q4_0) * OUTPUTS];
    for block in bytes.chunks_exact_mut(18) {
        block[..2].copy_from_slice(&half::f16::MAX.to_le_bytes());
    }
    let matrix = packed(TensorType::Q4_0, &bytes);
    assert!(matches!(matrix.store, Store::Nibbles(..)));
    let mut x = Panels::default();
    x.resize(1, INPUTS);
    x.data_mut()[0][0] = 1.0;
    let mut y = vec![[0.0; PANEL]];
    Level::best().run(Product {
        matrix: &matrix,
        panel: 0,
        x: &x,
        first_row: 0,
        y: &mut y,
        wide: &mut [[0.0; PANEL]; PANEL],
    });
    assert_eq!(y[0], [0.0; PANEL]);
}

#[test]
fn an_infinite_scale_is_refused() {
    let mut bytes = vec![0; row_bytes(TensorType::Q8_0) * OUTPUTS];
    bytes[..2].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
    let rows = FileRows {
        kind: TensorType::Q8_0,
        inputs: INPUTS,
        outputs: OUTPUTS,
        bytes: &bytes,
    };
    assert!(rows.pack(|output| output).is_err());
}
