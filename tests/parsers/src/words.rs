//! Numbers with units, as people write them in files and on command lines.

use lynx_crds::{Bits, Period};
use lynx_units::{BitRate, Width};

/// What is understood, is what it is printed as, up to the digits that are printed.
pub(crate) fn words(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Ok(rate) = text.parse::<BitRate>() {
        let printed = rate.to_string().parse::<BitRate>();
        let near = rate.bits_per_second() / 10 + 1;
        assert!(printed.is_ok_and(|printed| {
            printed.bits_per_second().abs_diff(rate.bits_per_second()) <= near
        }));
    }
    if let Ok(width) = text.parse::<Width>() {
        assert_eq!(width.to_string().parse(), Ok(width));
    }
    if let Ok(bits) = text.parse::<Bits>() {
        assert_eq!(bits.to_string().parse(), Ok(bits));
    }
    if let Ok(period) = text.parse::<Period>() {
        assert_eq!(period.to_string().parse(), Ok(period));
    }
}
