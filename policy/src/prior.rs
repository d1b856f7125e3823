//! What is known of acceptance before the first draft.

use lynx_units::Width;

/// How many tokens each draft of the measured tables had.
const DRAFTED: u32 = 32;

/// Mean accepted tokens out of 32 by mean anchor width, as measured on a model.
///
/// Between two measured widths the chance that a token is accepted is interpolated; outside of them it is that of the
/// nearest. The built-in tables are of SmolLM2-135M-Instruct, 24 prompts of 768 to 4096 tokens, the four sink tokens
/// in BF16; the standard error of an entry is about 2.5 tokens. They are where an [`Acceptance`](crate::Acceptance)
/// starts, and what a deployment observes soon outweighs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    accepted_of_32: &'static [(Width, f64)],
}

/// The width of a table's row; its number is a literal, so a mistake in it fails the build.
const fn eighths(eighths: u8) -> Width {
    match Width::from_eighths(eighths) {
        Some(width) => width,
        None => Width::FULL,
    }
}

impl Prior {
    /// Every channel the same width; at each mean the better pair of K and V widths, such as (4, 3) for 3.5.
    pub const UNIFORM: Self = Self {
        accepted_of_32: &[
            (eighths(16), 2.5),
            (eighths(24), 10.8),
            (eighths(28), 14.1),
            (eighths(32), 20.3),
            (eighths(36), 21.1),
            (eighths(40), 23.3),
            (eighths(48), 26.7),
            (eighths(64), 29.0),
        ],
    };

    /// K words in the order of a model's profile. Above 4.5 bits nothing was measured with a profile, so the uniform
    /// figures stand in: a profile is not worse there.
    pub const PROFILE: Self = Self {
        accepted_of_32: &[
            (eighths(24), 13.5),
            (eighths(28), 18.9),
            (eighths(32), 24.6),
            (eighths(36), 24.9),
            (eighths(48), 26.7),
            (eighths(64), 29.0),
        ],
    };

    /// A table of another model: mean accepted tokens of 32 by mean width, in ascending order of width.
    /// `None` where it is empty or out of order, or where a mean lies outside `0.0..=32.0`.
    pub fn new(accepted_of_32: &'static [(Width, f64)]) -> Option<Self> {
        let ascending = accepted_of_32.is_sorted_by(|a, b| a.0 < b.0);
        let possible = accepted_of_32
            .iter()
            .all(|(_, mean)| (0.0..=f64::from(DRAFTED)).contains(mean));
        (!accepted_of_32.is_empty() && ascending && possible).then_some(Self { accepted_of_32 })
    }

    /// The widths that were measured, ascending: the candidates of a choice.
    pub fn widths(self) -> impl Iterator<Item = Width> {
        self.accepted_of_32.iter().map(|(width, _)| *width)
    }

    /// The chance that a drafted token is accepted, given that all before it were.
    pub fn rate(self, width: Width) -> f64 {
        let of_32 = |mean| rate_of_mean(mean, f64::from(DRAFTED));
        let at = self
            .accepted_of_32
            .partition_point(|(known, _)| *known < width);
        match (
            at.checked_sub(1).and_then(|i| self.accepted_of_32.get(i)),
            self.accepted_of_32.get(at),
        ) {
            (Some(&(low, below)), Some(&(high, above))) => {
                let (below, above) = (of_32(below), of_32(above));
                let share = (width.bits() - low.bits()) / (high.bits() - low.bits());
                below + (above - below) * share
            }
            (Some(&(_, only)), None) | (None, Some(&(_, only))) => of_32(only),
            (None, None) => 0.0,
        }
    }
}

/// The rate at which a draft of `tokens` has `mean` accepted tokens, by bisection: [`crate::expected_accepted`] grows
/// with the rate.
pub(crate) fn rate_of_mean(mean: f64, tokens: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if crate::expected_accepted(middle, tokens) < mean {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected_accepted;

    #[test]
    fn a_measured_width_gives_its_measured_mean() {
        for prior in [Prior::UNIFORM, Prior::PROFILE] {
            for (width, mean) in prior.accepted_of_32 {
                let expected = expected_accepted(prior.rate(*width), 32.0);
                assert!((expected - mean).abs() < 1e-6, "{width}: {expected}");
            }
        }
    }

    /// Widths and windows of the time model's table, which averaged the 24 samples themselves.
    #[test]
    fn one_rate_predicts_shorter_drafts_within_a_token() {
        for (bits, window, measured) in [
            (2, 2.0, 1.2),
            (3, 2.0, 1.7),
            (4, 16.0, 12.3),
            (6, 8.0, 7.5),
            (3, 20.0, 8.5),
        ] {
            let rate = Prior::UNIFORM.rate(Width::from_bits(bits).unwrap());
            let expected = expected_accepted(rate, window);
            assert!(
                (expected - measured).abs() < 1.0,
                "{bits} bits, {window}: {expected}"
            );
        }
    }

    #[test]
    fn the_rate_grows_with_the_width_also_between_and_beyond_the_measured_ones() {
        for prior in [Prior::UNIFORM, Prior::PROFILE] {
            let rates = (0..=64).map(|e| prior.rate(Width::from_eighths(e).unwrap()));
            assert!(rates.is_sorted());
        }
    }

    #[test]
    fn a_table_out_of_order_is_refused() {
        const THREE: Width = eighths(24);
        const FOUR: Width = eighths(32);
        assert!(Prior::new(&[(THREE, 1.0), (FOUR, 2.0)]).is_some());
        assert!(Prior::new(&[(FOUR, 1.0), (THREE, 2.0)]).is_none());
        assert!(Prior::new(&[(FOUR, 1.0), (FOUR, 2.0)]).is_none());
        assert!(Prior::new(&[(FOUR, 33.0)]).is_none());
        assert!(Prior::new(&[(FOUR, f64::NAN)]).is_none());
        assert!(Prior::new(&[]).is_none());
    }
}
