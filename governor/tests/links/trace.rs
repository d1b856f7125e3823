//! What a link carries, second by second.

use super::random::Random;
use super::world::normal;

/// An hour.
pub(crate) const SECONDS: usize = 3600;

/// Bits per second for each second; zero where nothing gets through.
#[derive(Clone)]
pub(crate) struct Trace(Kind);

#[derive(Clone)]
enum Kind {
    Known(Vec<f64>),
    /// Around so many megabits per second, by chance.
    Blackouts(f64),
    Wandering(f64),
}

impl Trace {
    fn known(megabits: impl Fn(usize) -> f64) -> Self {
        Self(Kind::Known(
            (0..SECONDS).map(|second| megabits(second) * 1e6).collect(),
        ))
    }

    pub(crate) fn steady(megabits: f64) -> Self {
        Self::known(|_| megabits)
    }

    /// Each rate for the same time.
    pub(crate) fn steps(megabits: &[f64]) -> Self {
        Self::known(|second| megabits[second * megabits.len() / SECONDS])
    }

    /// From `high` down to `low` by equal ratios, and at once back.
    pub(crate) fn saw(low: f64, high: f64, period: usize) -> Self {
        Self::known(|second| {
            let share = share(second % period, period);
            high * libm::pow(low / high, share)
        })
    }

    /// `high` and `low` for `half` seconds each.
    pub(crate) fn flapping(low: f64, high: f64, half: usize) -> Self {
        Self::known(|second| {
            if (second / half).is_multiple_of(2) {
                high
            } else {
                low
            }
        })
    }

    /// Every two minutes or so nothing gets through for 3 to 40 seconds.
    pub(crate) fn blackouts(megabits: f64) -> Self {
        Self(Kind::Blackouts(megabits))
    }

    /// A walk by ratios, between a fifth and five times.
    pub(crate) fn wandering(megabits: f64) -> Self {
        Self(Kind::Wandering(megabits))
    }

    pub(crate) fn rates(&self, random: &mut Random) -> Vec<f64> {
        match &self.0 {
            Kind::Known(rates) => rates.clone(),
            Kind::Blackouts(megabits) => {
                let mut rates = vec![megabits * 1e6; SECONDS];
                let mut second = 0.0;
                loop {
                    second += 60.0 + 120.0 * random.unit();
                    let end = second + 3.0 + 37.0 * random.unit();
                    // The last minute is light: what is under way gets there.
                    if end > 3540.0 {
                        return rates;
                    }
                    rates[whole(second)..whole(end)].fill(0.0);
                    second = end;
                }
            }
            Kind::Wandering(megabits) => {
                let mut ratio: f64 = 1.0;
                (0..SECONDS)
                    .map(|_| {
                        ratio = (ratio * libm::exp(0.05 * normal(random))).clamp(0.2, 5.0);
                        megabits * 1e6 * ratio
                    })
                    .collect()
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of an hour")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of an hour"
)]
fn whole(second: f64) -> usize {
    second as usize
}
