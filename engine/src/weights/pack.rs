//! From a file's rows to panels.

use half::f16;

use super::{Matrix, Scales, Store, Table};
use crate::panels::PANEL;
use crate::quant::TensorType;
use crate::simd::LANES;

/// Why a tensor could not be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The shape is not the one that the model's numbers ask for.
    #[error(
        "its shape is {found:?}, but the model's numbers ask for {expected:?}: convert the model again"
    )]
    Shape {
        /// What the file has.
        found: Vec<usize>,
        /// What belongs there.
        expected: Vec<usize>,
    },
    /// A scale, an offset or a weight is infinite or not a number.
    #[error("it holds numbers that are not finite: the file is damaged, download it again")]
    NotFinite,
}

/// The rows of a tensor in a file.
pub(crate) struct FileRows<'a> {
    pub(crate) kind: TensorType,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) bytes: &'a [u8],
}

impl FileRows<'_> {
    /// Packs the rows: output `i` of the matrix is the file's row `order(i)`.
    pub(crate) fn pack(&self, order: impl Fn(usize) -> usize) -> Result<Matrix, PackError> {
        let row_bytes = self.inputs / self.kind.block() * self.kind.block_bytes();
        let row = |output: usize| {
            let start = order(output) * row_bytes;
            &self.bytes[start..start + row_bytes]
        };
        let store = match self.kind {
            TensorType::F16 => Store::F16(self.floats(row, u16::from_le_bytes)),
            TensorType::Bf16 => Store::Bf16(self.floats(row, u16::from_le_bytes)),
            TensorType::F32 => Store::F32(self.floats(row, f32::from_le_bytes)),
            TensorType::Q4_0 | TensorType::Q4_1 | TensorType::Q4K => {
                let mut words = vec![[0; LANES]; self.padded() / PANEL * self.inputs / 2];
                let scales = self.groups(row, |output, input, code| {
                    let place = (output / PANEL * self.inputs + input) / 2;
                    let shift = input % 2 * 16 + output % PANEL / LANES * 4;
                    words[place][output % LANES] |= u32::from(code.cast_unsigned()) << shift;
                })?;
                Store::Nibbles(words, scales)
            }
            _ => {
                let mut codes = vec![[0; PANEL]; self.padded() / PANEL * self.inputs];
                let scales = self.groups(row, |output, input, code| {
                    codes[output / PANEL * self.inputs + input][output % PANEL] = code;
                })?;
                match self.kind.group() {
                    Some(16) => Store::Bytes16(codes, scales),
                    _ => Store::Bytes32(codes, scales),
                }
            }
        };
        Ok(Matrix {
            outputs: self.outputs,
            inputs: self.inputs,
            store,
        })
    }

    /// The number of outputs with those that fill the last panel.
    fn padded(&self) -> usize {
        self.outputs.next_multiple_of(PANEL)
    }

    fn floats<'b, T: Copy + Default, const N: usize>(
        &self,
        row: impl Fn(usize) -> &'b [u8],
        decode: impl Fn([u8; N]) -> T,
    ) -> Vec<[T; PANEL]> {
        let mut panels = vec![[T::default(); PANEL]; self.padded() / PANEL * self.inputs];
        for output in 0..self.outputs {
            let first = output / PANEL * self.inputs;
            for (input, bytes) in row(output).as_chunks::<N>().0.iter().enumerate() {
                panels[first + input][output % PANEL] = decode(*bytes);
            }
        }
        panels
    }

    /// Takes all rows apart: the codes go to `put(output, input, code)`, the scales are collected.
    fn groups<'b>(
        &self,
        row: impl Fn(usize) -> &'b [u8],
        mut put: impl FnMut(usize, usize, i8),
    ) -> Result<Scales, PackError> {
        let group_size = self.kind.group().unwrap_or(self.inputs);
        let groups = self.inputs / group_size;
        let mut scales = vec![[0.0; PANEL]; self.padded() / PANEL * groups];
        let mut offsets = scales.clone();
        let mut finite = true;
        for output in 0..self.outputs {
            let mut index = 0;
            self.kind.groups(row(output), |group| {
                let entry = output / PANEL * groups + index;
                scales[entry][output % PANEL] = group.scale;
                offsets[entry][output % PANEL] = group.offset;
                finite &= group.scale.is_finite() && group.offset.is_finite();
                for (input, &code) in (index * group_size..).zip(group.codes) {
                    put(output, input, code);
                }
                index += 1;
            });
        }
        if !finite {
            return Err(PackError::NotFinite);
        }
        let some = offsets.as_flattened().iter().any(|&offset| offset != 0.0);
        Ok(Scales {
            scales: Table::new(scales),
            offsets: some.then(|| Table::new(offsets)),
        })
    }
}

impl Table {
    fn new(rows: Vec<[f32; PANEL]>) -> Self {
        let half = |value: f32| f16::from_f32(value);
        let exact = |&value: &f32| half(value).to_f32().to_bits() == value.to_bits();
        if rows.as_flattened().iter().all(exact) {
            Self::Half(
                rows.into_iter()
                    .map(|row| row.map(|value| half(value).to_bits()))
                    .collect(),
            )
        } else {
            Self::Single(rows)
        }
    }
}
