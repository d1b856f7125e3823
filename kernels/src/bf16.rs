//! BF16 bit patterns as numbers and as ordinals.

/// Magnitudes from 2^120 up, infinities and NaNs have bits at or above this (sign removed). Such values are escaped, so
/// that no bound of a group can overflow.
pub(crate) const HUGE: u16 = (127 + 120) << 7;

/// The value of a bit pattern.
#[inline(always)]
pub(crate) const fn value(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The order of the values: `ordinal(a) < ordinal(b)` if `a < b`; -0 comes just before +0.
#[inline(always)]
pub(crate) const fn ordinal(bits: u16) -> u16 {
    if bits & 0x8000 == 0 {
        bits | 0x8000
    } else {
        !bits
    }
}

/// The bit pattern with this [`ordinal`].
#[inline(always)]
pub(crate) const fn from_ordinal(ordinal: u16) -> u16 {
    if ordinal & 0x8000 == 0 {
        !ordinal
    } else {
        ordinal & 0x7fff
    }
}

/// The nearest BF16, ties to even. `x` isn't NaN.
#[inline(always)]
pub(crate) const fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    high(bits.wrapping_add(0x7fff + ((bits >> 16) & 1)))
}

/// The smallest BF16 that is at least `x`, for a positive, finite `x`.
#[inline(always)]
pub(crate) const fn round_up(x: f32) -> u16 {
    high(x.to_bits() + 0xffff)
}

/// The smallest ordinal whose value is at least `x` (finite); that of -0 for a zero of either sign.
#[inline(always)]
pub(crate) const fn first_ordinal(x: f32) -> u16 {
    let bits = x.to_bits();
    if bits << 1 == 0 {
        0x7fff
    } else if bits >> 31 == 0 {
        high((bits | 0x8000_0000) + 0xffff)
    } else {
        high(!bits)
    }
}

#[inline(always)]
const fn high(bits: u32) -> u16 {
    (bits >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_sort_the_values() {
        for bits in 0..=u16::MAX {
            assert_eq!(from_ordinal(ordinal(bits)), bits);
        }
        let finite = ordinal(0xff7f)..=ordinal(0x7f7f);
        for (a, b) in finite.clone().zip(finite.skip(1)) {
            let (a, b) = (value(from_ordinal(a)), value(from_ordinal(b)));
            assert!(
                a < b || (a == 0.0 && b == 0.0 && a.is_sign_negative()),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn the_first_ordinal_is_the_least_that_reaches_the_bound() {
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0x8000, 0xffff] {
                let x = f32::from_bits((u32::from(high) << 16) | low);
                if x.is_finite() && x.abs() < value(HUGE) {
                    let first = first_ordinal(x);
                    assert!(value(from_ordinal(first)) >= x);
                    assert!(value(from_ordinal(first - 1)) < x || x == 0.0);
                }
            }
        }
    }

    #[test]
    fn nearest_ties_to_even() {
        for (bits, rounded) in [
            (0x3f80_8000, 0x3f80),
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0x8000_8000, 0x8000),
        ] {
            assert_eq!(nearest(f32::from_bits(bits)), rounded, "{bits:x}");
        }
    }
}
