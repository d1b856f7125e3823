//! `exp` and `ln` from IEEE additions, multiplications and divisions only, so that every machine gives the same bits.
//!
//! Not the standard library's: those call the platform's maths library, whose last bit differs between systems, and one
//! bit decides a sampled token. Both are good to about 1e-15, far finer than the noise they serve.

/// The high bits of ln 2, with enough trailing zeros that a product with an exponent is exact.
const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
/// ln 2 less [`LN2_HIGH`].
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// 1/n! for n from 0 to 14.
const INVERSE_FACTORIALS: [f64; 15] = {
    let mut coefficients = [1.0; 15];
    let mut n = 1;
    while n < 15 {
        coefficients[n] = coefficients[n - 1] / n as f64;
        n += 1;
    }
    coefficients
};

/// `e^x` for `x <= 0`; zero where the result would be subnormal.
pub(crate) fn exp_of_negative(x: f64) -> f64 {
    let exponent = (x * core::f64::consts::LOG2_E).round();
    if exponent < -1022.0 {
        return 0.0;
    }
    let rest = (x - exponent * LN2_HIGH) - exponent * LN2_LOW;
    // Taylor's series by Horner: |rest| <= 0.35, so that the first term left out is below 1e-18.
    let series = INVERSE_FACTORIALS
        .iter()
        .rev()
        .fold(0.0, |sum, coefficient| sum * rest + coefficient);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in 1..=1023: -1022 <= exponent <= 0"
    )]
    let biased = (exponent + 1023.0) as u64;
    series * f64::from_bits(biased << 52)
}

/// The natural logarithm of a normal, positive `x`.
pub(crate) fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    #[expect(clippy::cast_precision_loss, reason = "at most 2046")]
    let mut exponent = (bits >> 52) as f64 - 1023.0;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | (1023 << 52));
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    // ln m = 2 artanh s; |s| <= 0.172, so that the first term left out is below 1e-18.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12_u32)
        .rev()
        .fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    exponent * LN2_HIGH + (2.0 * s * series + exponent * LN2_LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_platform_to_the_last_digits() {
        for step in 0..20_000_u32 {
            let x = -f64::from(step) * 0.03;
            let (ours, theirs) = (exp_of_negative(x), x.exp());
            assert!((ours - theirs).abs() <= theirs * 1e-14, "exp({x})");

            let y = f64::from(step + 1) * 1.7e-3;
            let (ours, theirs) = (ln(y), y.ln());
            assert!(
                (ours - theirs).abs() <= theirs.abs() * 1e-14 + 1e-16,
                "ln({y})"
            );
        }
    }

    #[test]
    fn the_ends_of_the_range_are_tame() {
        assert_eq!(exp_of_negative(0.0).to_bits(), 1.0_f64.to_bits());
        assert_eq!(exp_of_negative(-1e6).to_bits(), 0.0_f64.to_bits());
        assert_eq!(
            exp_of_negative(f64::NEG_INFINITY).to_bits(),
            0.0_f64.to_bits()
        );
        assert_eq!(ln(1.0).to_bits(), 0.0_f64.to_bits());
        assert!(ln(f64::MIN_POSITIVE) < -708.0);
    }
}
