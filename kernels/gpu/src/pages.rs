//! Where an engine's paged cache has its values.

use lynx_kernels::KvShape;

/// The pages of one layer's K or V. Channels of a (token, head) lie side by side; strides are in elements of two bytes.
///
/// MLA's latent vectors, which have no heads, are V of nine heads of 64 channels: the 512 latent channels, then the 64 rotary
/// ones, whose values are of another size and so are groups of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Tokens of a page: a power of two from 16 to 128.
    pub tokens: u32,
    /// From a page to the next.
    pub page_stride: u64,
    /// From a token to the next in its page.
    pub token_stride: u32,
    /// From a head to the next.
    pub head_stride: u32,
}

/// Pages that the kernels can't read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagesError {
    /// The pages are too small, too large or not a power of two.
    #[error("pages of {0} tokens can't be read: use a power of two from 16 to 128")]
    Tokens(u32),
    /// A stride isn't a multiple of 16 bytes, which is how much a thread reads.
    #[error("strides must be multiples of 8 elements, which those of {0:?} aren't")]
    Strides(Pages),
}

impl Pages {
    /// `[page][token][head][channel]` without gaps; `None` where a number is too large.
    pub fn nhd(shape: KvShape, tokens: u32) -> Option<Self> {
        let (heads, channels) = sizes(shape)?;
        Some(Self {
            tokens,
            page_stride: u64::from(tokens) * u64::from(heads.checked_mul(channels)?),
            token_stride: heads.checked_mul(channels)?,
            head_stride: channels,
        })
    }

    /// `[page][head][token][channel]` without gaps; `None` where a number is too large.
    pub fn hnd(shape: KvShape, tokens: u32) -> Option<Self> {
        let (heads, channels) = sizes(shape)?;
        let head_stride = tokens.checked_mul(channels)?;
        Some(Self {
            tokens,
            page_stride: u64::from(heads) * u64::from(head_stride),
            token_stride: channels,
            head_stride,
        })
    }

    /// The same pages where another tensor's lie between them: `[page][K, V]...` has a stride of two pages.
    #[must_use]
    pub fn every(self, pages: u64) -> Self {
        Self {
            page_stride: self.page_stride * pages,
            ..self
        }
    }

    /// The first position of the page that holds `position`.
    pub fn start(&self, position: u32) -> u32 {
        position / self.tokens * self.tokens
    }

    pub(crate) fn check(&self) -> Result<(), PagesError> {
        if !self.tokens.is_power_of_two() || !(16..=128).contains(&self.tokens) {
            return Err(PagesError::Tokens(self.tokens));
        }
        let strides = self.page_stride.is_multiple_of(8)
            && self.token_stride.is_multiple_of(8)
            && self.head_stride.is_multiple_of(8);
        if strides {
            Ok(())
        } else {
            Err(PagesError::Strides(*self))
        }
    }
}

fn sizes(shape: KvShape) -> Option<(u32, u32)> {
    Some((
        u32::try_from(shape.kv_heads).ok()?,
        u32::try_from(shape.head_dim).ok()?,
    ))
}
