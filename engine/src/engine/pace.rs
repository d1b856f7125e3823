//! How long a token takes.

use core::time::Duration;

use lynx_units::Timestamp;

/// A moving average over steps that evaluate one token of each request. A step is taken to last until the next one
/// begins, which is so only where the caller steps again at once: [`Pace::end`] says where it does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    average: Option<Duration>,
    began: Option<Timestamp>,
}

impl Pace {
    /// A step begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if let Some(began) = self.began.take() {
            let took = now - began;
            let average = self.average.map_or(took, |old| (old * 7 + took) / 8);
            self.average = Some(average);
        }
    }

    /// The step that began at `began` is over. It counts where it was of the kind that is measured, and where the next
    /// one follows at once.
    pub(super) fn end(&mut self, began: Timestamp, counts: bool) {
        self.began = counts.then_some(began);
    }

    /// The estimate; zero before the first measurement.
    pub(super) fn token_time(&self) -> Duration {
        self.average.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_that_follow_each_other_count() {
        let mut pace = Pace::default();
        let at = |ms| Timestamp::from_origin(Duration::from_millis(ms));
        assert_eq!(pace.token_time(), Duration::ZERO);
        pace.begin(at(0));
        pace.end(at(0), true);
        pace.begin(at(20));
        pace.end(at(20), false);
        assert_eq!(pace.token_time(), Duration::from_millis(20));
        pace.begin(at(5000));
        pace.end(at(5000), true);
        pace.begin(at(5100));
        assert_eq!(pace.token_time(), Duration::from_millis(30));
    }
}
