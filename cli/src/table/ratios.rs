//! How many times sooner one method reaches a moment than another.

use crate::rows::TtftRow;

/// Ratios of another row's times to this row's: above 1, this one is sooner. Missing where either never got there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    /// This row's bytes over the other's.
    pub(crate) bytes: Option<f64>,
    /// To the second token, provisional or not.
    pub(crate) second: Option<f64>,
    /// To the second verified token.
    pub(crate) second_verified: Option<f64>,
    /// To the 32nd verified token.
    pub(crate) t32: Option<f64>,
    /// To the 64th verified token.
    pub(crate) t64: Option<f64>,
}

impl Ratios {
    /// `row` compared with `other`.
    pub(crate) fn of(row: &TtftRow, other: &TtftRow) -> Self {
        let sooner = |pick: fn(&TtftRow) -> Option<f64>| quotient(pick(other)?, pick(row)?);
        Self {
            bytes: quotient(as_f64(row.wire_bytes), as_f64(other.wire_bytes)),
            second: sooner(|row| row.t_second_s),
            second_verified: sooner(|row| row.t_second_verified_s),
            t32: sooner(|row| row.t32_s),
            t64: sooner(|row| row.t64_s),
        }
    }
}

fn quotient(dividend: f64, divisor: f64) -> Option<f64> {
    (dividend > 0.0 && divisor > 0.0).then(|| dividend / divisor)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share is printed with three digits"
)]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}
