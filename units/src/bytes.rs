//! A count of bytes.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A count of bytes; its sum saturates, so that a hostile length can't wrap round to a small one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// `count` KiB (1024 bytes each).
    pub const fn from_kib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 10))
    }

    /// `count` MiB (1024 KiB each).
    pub const fn from_mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// The length of a slice in memory.
    pub const fn of_slice(slice: &[u8]) -> Self {
        // A slice is never longer than isize::MAX, which fits.
        Self(slice.len() as u64)
    }

    /// The count itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// This many bits.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// `self - other`, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
        let count = self.0 as f64;
        match self.0 {
            0..1_024 => write!(f, "{} B", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KiB", count / 1024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", count / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", count / 1_073_741_824.0),
        }
    }
}
