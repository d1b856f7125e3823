//! What Lynx is compared with: the KV as BF16, and as INT8 and INT4 the way they are commonly deployed.
//!
//! Commonly deployed means: symmetric, one f16 scale for a token and head, `absmax / 127` or `absmax / 7`. Better low-bit formats
//! exist (groups of 32, per-channel K) and the accuracy bench shows what Lynx's own cells do; this one answers "what would I
//! have had without Lynx". It is written to run at memory speed, so that no comparison is won by a slow baseline.
//!
//! A tile is one (kv head, token block) of K or V in the same memory layout as the codec's, so that both start from the same bytes.
//! An encoded tile is its scales, one little-endian f16 for a token, followed by the codes row by row in memory order.

use half::f16;
use thiserror::Error;

/// Tokens of a full block, and the row length of a [`Layout::ChannelMajor`] tile.
pub const BLOCK_TOKENS: usize = 64;

/// How a tile lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[token][channel]`, as V.
    TokenMajor,
    /// `[channel][64 tokens]`, as K; the rows of a partial block are only filled up to its token count.
    ChannelMajor,
}

/// The shape of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    layout: Layout,
    tokens: usize,
    head_dim: usize,
}

impl TileShape {
    /// A tile of `tokens` (1 to 64) times `head_dim` (at least 1) elements; `None` for anything else.
    pub const fn new(layout: Layout, tokens: usize, head_dim: usize) -> Option<Self> {
        // The bound keeps every product below in range.
        if tokens == 0 || tokens > BLOCK_TOKENS || head_dim == 0 || head_dim > 1 << 16 {
            return None;
        }
        Some(Self {
            layout,
            tokens,
            head_dim,
        })
    }

    /// How many elements the tile spans in memory, unused ones included.
    pub const fn span(self) -> usize {
        self.rows() * self.stride()
    }

    const fn rows(self) -> usize {
        match self.layout {
            Layout::TokenMajor => self.tokens,
            Layout::ChannelMajor => self.head_dim,
        }
    }

    /// Used elements of a row.
    const fn columns(self) -> usize {
        match self.layout {
            Layout::TokenMajor => self.head_dim,
            Layout::ChannelMajor => self.tokens,
        }
    }

    const fn stride(self) -> usize {
        match self.layout {
            Layout::TokenMajor => self.head_dim,
            Layout::ChannelMajor => BLOCK_TOKENS,
        }
    }
}

/// A format that the whole KV is sent in before decoding begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// As it is.
    Bf16,
    /// Codes -127 to 127.
    Int8,
    /// Codes -7 to 7, two to a byte, the even column in the low half.
    Int4,
}

/// Why a tile can't be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the tile spans {wanted} elements, but {got} were given; check its token count and head dimension"
)]
pub struct EncodeError {
    wanted: usize,
    got: usize,
}

/// Why bytes are no encoded tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Too few bytes, or too many.
    #[error(
        "the encoded tile must have {wanted} bytes, but {got} came; check that both sides agree on its shape and format"
    )]
    Length {
        /// What the shape asks for.
        wanted: usize,
        /// What came.
        got: usize,
    },
    /// The destination is too small.
    #[error(
        "the tile spans {wanted} elements, but there is room for {got}; check its token count and head dimension"
    )]
    Room {
        /// What the shape asks for.
        wanted: usize,
        /// What is there.
        got: usize,
    },
    /// A scale that no encoder writes.
    #[error("the scale of token {token} is negative or not finite: the bytes are corrupt")]
    Scale {
        /// The token within the tile.
        token: usize,
    },
}

impl Baseline {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Int8, Self::Int4];

    /// The bytes of an encoded tile of this shape.
    pub const fn encoded_len(self, shape: TileShape) -> usize {
        let (rows, columns) = (shape.rows(), shape.columns());
        match self {
            Self::Bf16 => 2 * rows * columns,
            Self::Int8 => 2 * shape.tokens + rows * columns,
            Self::Int4 => 2 * shape.tokens + rows * columns.div_ceil(2),
        }
    }

    /// The largest code.
    const fn limit(self) -> f32 {
        match self {
            Self::Bf16 | Self::Int8 => 127.0,
            Self::Int4 => 7.0,
        }
    }

    /// Appends the encoded tile to `out`. `values` are BF16 bit patterns, [`TileShape::span`] of them or more. The integer
    /// formats have no NaN and no infinity: NaN becomes 0, an infinity the token's largest finite magnitude.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] where `values` is too short; `out` is then as it was.
    pub fn encode(
        self,
        shape: TileShape,
        values: &[u16],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let values = values.get(..shape.span()).ok_or(EncodeError {
            wanted: shape.span(),
            got: values.len(),
        })?;
        let rows = values
            .chunks_exact(shape.stride())
            .map(|row| &row[..shape.columns()]);
        out.reserve(self.encoded_len(shape));
        if self == Self::Bf16 {
            for row in rows {
                out.extend(row.iter().flat_map(|x| x.to_le_bytes()));
            }
            return Ok(());
        }
        let scales = self.scales(shape, rows.clone());
        out.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
        let inverses: Vec<f32> = scales.iter().map(|scale| inverse(*scale)).collect();
        let mut codes = vec![0_i8; shape.columns()];
        for (index, row) in rows.enumerate() {
            match shape.layout {
                Layout::TokenMajor => {
                    quantise(
                        row,
                        std::iter::repeat(inverses[index]),
                        self.limit(),
                        &mut codes,
                    );
                }
                Layout::ChannelMajor => {
                    quantise(row, inverses.iter().copied(), self.limit(), &mut codes);
                }
            }
            self.pack(&codes, out);
        }
        Ok(())
    }

    /// Decodes a tile into BF16 bit patterns. Elements of `values` that the tile does not use stay as they are.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] where `bytes` is not as long as the shape says, `values` is too short, or a scale is invalid; `values`
    /// is then as it was.
    pub fn decode(
        self,
        shape: TileShape,
        bytes: &[u8],
        values: &mut [u16],
    ) -> Result<(), DecodeError> {
        let wanted = self.encoded_len(shape);
        if bytes.len() != wanted {
            return Err(DecodeError::Length {
                wanted,
                got: bytes.len(),
            });
        }
        let room = values.len();
        let values = values.get_mut(..shape.span()).ok_or(DecodeError::Room {
            wanted: shape.span(),
            got: room,
        })?;
        let rows = values
            .chunks_exact_mut(shape.stride())
            .map(|row| &mut row[..shape.columns()]);
        if self == Self::Bf16 {
            for (row, encoded) in rows.zip(bytes.chunks_exact(2 * shape.columns())) {
                for (value, pair) in row.iter_mut().zip(encoded.as_chunks::<2>().0) {
                    *value = u16::from_le_bytes(*pair);
                }
            }
            return Ok(());
        }
        let (scales, packed) = bytes.split_at(2 * shape.tokens);
        let scales = read_scales(scales)?;
        let row_bytes = packed.len() / shape.rows();
        let mut codes = vec![0_i8; shape.columns()];
        for (index, (row, packed)) in rows.zip(packed.chunks_exact(row_bytes)).enumerate() {
            self.unpack(packed, &mut codes);
            match shape.layout {
                Layout::TokenMajor => dequantise(&codes, std::iter::repeat(scales[index]), row),
                Layout::ChannelMajor => dequantise(&codes, scales.iter().copied(), row),
            }
        }
        Ok(())
    }

    /// One scale for each token, from the rows.
    fn scales<'a>(self, shape: TileShape, rows: impl Iterator<Item = &'a [u16]>) -> Vec<f16> {
        let mut largest = vec![0_u16; shape.tokens];
        for (index, row) in rows.enumerate() {
            match shape.layout {
                Layout::TokenMajor => {
                    largest[index] = row.iter().fold(0, |most, &x| most.max(magnitude(x)));
                }
                Layout::ChannelMajor => {
                    for (most, &x) in largest.iter_mut().zip(row) {
                        *most = (*most).max(magnitude(x));
                    }
                }
            }
        }
        let scale = |most: u16| (to_f32(most) / self.limit()).min(f16::MAX.to_f32());
        largest
            .into_iter()
            .map(|most| f16::from_f32(scale(most)))
            .collect()
    }

    fn pack(self, codes: &[i8], out: &mut Vec<u8>) {
        if self == Self::Int4 {
            let low = |code: i8| code.cast_unsigned() & 0xf;
            let (pairs, rest) = codes.as_chunks::<2>();
            out.extend(pairs.iter().map(|[even, odd]| low(*even) | low(*odd) << 4));
            out.extend(rest.iter().map(|even| low(*even)));
        } else {
            out.extend(codes.iter().map(|code| code.cast_unsigned()));
        }
    }

    fn unpack(self, packed: &[u8], codes: &mut [i8]) {
        if self == Self::Int4 {
            // Shifting a nibble to the top and back down extends its sign.
            for (pair, byte) in codes.chunks_mut(2).zip(packed) {
                pair[0] = (byte << 4).cast_signed() >> 4;
                if let Some(odd) = pair.get_mut(1) {
                    *odd = byte.cast_signed() >> 4;
                }
            }
        } else {
            for (code, byte) in codes.iter_mut().zip(packed) {
                *code = byte.cast_signed();
            }
        }
    }
}

fn to_f32(bf16: u16) -> f32 {
    f32::from_bits(u32::from(bf16) << 16)
}

/// The bit pattern of `|x|`, whose order as an integer is that of the magnitudes; 0 for what is not finite.
fn magnitude(bf16: u16) -> u16 {
    const INFINITY: u16 = 0x7f80;
    let magnitude = bf16 & 0x7fff;
    if magnitude < INFINITY { magnitude } else { 0 }
}

/// What values are multiplied with: of the scale as it was rounded, because that is the one the decoder has.
fn inverse(scale: f16) -> f32 {
    let scale = scale.to_f32();
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

fn quantise(row: &[u16], inverses: impl Iterator<Item = f32>, limit: f32, codes: &mut [i8]) {
    /// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa, ties to even. Unlike `round`, which is a
    /// function call on plain x86-64, it vectorises.
    const ROUND: f32 = 12_582_912.0;
    for ((code, &x), inverse) in codes.iter_mut().zip(row).zip(inverses) {
        let scaled = to_f32(x) * inverse;
        let scaled = if scaled.is_nan() { 0.0 } else { scaled };
        let rounded = scaled.clamp(-limit, limit) + ROUND;
        *code = rounded.to_bits().to_le_bytes()[0].cast_signed();
    }
}

fn dequantise(codes: &[i8], scales: impl Iterator<Item = f32>, row: &mut [u16]) {
    for ((value, &code), scale) in row.iter_mut().zip(codes).zip(scales) {
        let bits = (f32::from(code) * scale).to_bits();
        // To the nearest BF16, ties to even; never near the largest float, so the sum can't overflow.
        let rounded = bits + 0x7fff + ((bits >> 16) & 1);
        let [_, _, low, high] = rounded.to_le_bytes();
        *value = u16::from_le_bytes([low, high]);
    }
}

fn read_scales(bytes: &[u8]) -> Result<Vec<f32>, DecodeError> {
    let scales = bytes.as_chunks::<2>().0.iter().enumerate();
    scales
        .map(|(token, pair)| {
            let scale = f16::from_le_bytes(*pair).to_f32();
            if scale.is_finite() && scale >= 0.0 {
                Ok(scale)
            } else {
                Err(DecodeError::Scale { token })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
