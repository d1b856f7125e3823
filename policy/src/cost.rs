//! What things cost: tokens, verifications, bits on the wire.

use core::time::Duration;

/// Mean bits an element that a whole exact transfer takes: 8-bit codes, parameters and tail, 69 % of BF16.
const EXACT_BITS: f64 = 11.1;
/// Bits of a code with all its planes.
const CODE_BITS: f64 = 8.0;

/// What a decode engine takes for its work, as measured on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// One decode step, which is also one drafted token.
    pub token: Duration,
    /// A verification of no drafted token: it yields one token, as a decode step does.
    pub verification: Duration,
    /// What each drafted token adds to a verification.
    pub verified_token: Duration,
}

/// What "full" means to a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// Bit-identical BF16: all planes and the exact tail.
    #[default]
    Exact,
    /// All eight planes; "verified" then means verified against 8-bit KV.
    Int8,
}

impl Fidelity {
    /// Bits an element on the wire in all, where parameters and raw tokens take `overhead` bits an element.
    pub fn bits_per_element(self, overhead: f64) -> f64 {
        match self {
            Self::Exact => EXACT_BITS,
            Self::Int8 => CODE_BITS + overhead,
        }
    }
}

/// When the parts of a transfer are there, in seconds after its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// The anchor.
    pub anchor: f64,
    /// Everything; no earlier than the anchor.
    pub full: f64,
}

impl Costs {
    /// Seconds that verifying `tokens` drafted tokens takes longer than the decode step it stands in for.
    pub(crate) fn extra(&self, tokens: f64) -> f64 {
        self.verification.as_secs_f64() + tokens * self.verified_token.as_secs_f64()
            - self.token.as_secs_f64()
    }
}
