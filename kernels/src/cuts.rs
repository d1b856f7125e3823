//! Where the anchor and the refinement steps end.

use lynx_units::Width;

use crate::Kind;

/// The cuts through the eight planes: the anchor first, then one step per further whole bit. Step 0 is the anchor; a
/// fractional K width is made whole by step 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cuts {
    k: Width,
    v: u8,
}

/// Widths that no anchor can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an anchor of K {k} bits and V {v} bits is impossible: both must be 1 to 8")]
pub struct CutsError {
    /// The K width asked for.
    pub k: Width,
    /// The V width asked for.
    pub v: u8,
}

impl Cuts {
    /// An anchor of mean width `k` for K and of `v` whole planes for V.
    ///
    /// # Errors
    /// Where either is below 1 or above 8 bits.
    pub fn new(k: Width, v: u8) -> Result<Self, CutsError> {
        if k.eighths() >= 8 && (1..=8).contains(&v) {
            Ok(Self { k, v })
        } else {
            Err(CutsError { k, v })
        }
    }

    /// The anchor's mean K width.
    pub const fn k(self) -> Width {
        self.k
    }

    /// The anchor's V width in planes.
    pub const fn v(self) -> u8 {
        self.v
    }

    /// The anchor's mean width over K and V.
    pub fn mean(self) -> f64 {
        f64::midpoint(self.k.bits(), f64::from(self.v))
    }

    /// How many steps a unit of `kind` has, the anchor included: 1 to 8.
    pub fn steps(self, kind: Kind) -> usize {
        1 + usize::from(8 - self.anchor(kind).eighths().div_ceil(8))
            + usize::from(!self.anchor(kind).eighths().is_multiple_of(8))
    }

    /// The mean width that the first `steps` steps hold; zero for none, all eight bits for more than there are.
    pub fn width(self, kind: Kind, steps: usize) -> Width {
        if steps == 0 {
            return Width::default();
        }
        let whole = usize::from(self.anchor(kind).eighths() / 8);
        match u8::try_from(whole + steps - 1) {
            _ if steps == 1 => self.anchor(kind),
            Ok(bits) => Width::from_bits(bits).unwrap_or(Width::FULL),
            Err(_) => Width::FULL,
        }
    }

    fn anchor(self, kind: Kind) -> Width {
        match kind {
            Kind::K => self.k,
            Kind::V => Width::from_bits(self.v).unwrap_or(Width::FULL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(cuts: Cuts, kind: Kind) -> Vec<f64> {
        (1..=cuts.steps(kind))
            .map(|s| cuts.width(kind, s).bits())
            .collect()
    }

    #[test]
    fn every_step_adds_up_to_the_next_whole_bit() {
        let cuts = Cuts::new("3.5".parse().unwrap(), 6).unwrap();
        assert_eq!(widths(cuts, Kind::K), [3.5, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(widths(cuts, Kind::V), [6.0, 7.0, 8.0]);
        let cuts = Cuts::new(Width::FULL, 1).unwrap();
        assert_eq!(widths(cuts, Kind::K), [8.0]);
        assert_eq!(widths(cuts, Kind::V).len(), 8);
        assert_eq!(cuts.width(Kind::V, 0), Width::default());
        assert_eq!(cuts.width(Kind::V, 100), Width::FULL);
        let cuts = Cuts::new("7.125".parse().unwrap(), 1).unwrap();
        assert_eq!(widths(cuts, Kind::K), [7.125, 8.0]);
    }

    #[test]
    fn an_anchor_has_at_least_one_bit() {
        assert!(Cuts::new("0.875".parse().unwrap(), 4).is_err());
        assert!(Cuts::new(Width::FULL, 0).is_err());
        assert!(Cuts::new(Width::FULL, 9).is_err());
    }
}
