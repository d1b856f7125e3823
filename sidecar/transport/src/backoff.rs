//! How long to wait before dialling again.

use std::time::Duration;

/// Waits that double from [`Backoff::FIRST`] to [`Backoff::LONGEST`], each shortened by up to a half, so that nodes which
/// lost the same peer don't return in step. The randomness is an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The first wait is at most this.
    pub(crate) const FIRST: Duration = Duration::from_millis(50);
    /// No wait is longer. A peer that is back is found within this time.
    pub(crate) const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) const fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The next wait; `random` is any uniform number.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let longest = self.next;
        self.next = (longest * 2).min(Self::LONGEST);
        longest / 2 + (longest / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_vary_by_a_half() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.next(0), Backoff::FIRST / 2);
        assert_eq!(backoff.next(u32::MAX), Backoff::FIRST * 2);
        for _ in 0..10 {
            backoff.next(0);
        }
        assert_eq!(backoff.next(u32::MAX), Backoff::LONGEST);
        assert_eq!(backoff.next(0), Backoff::LONGEST / 2);
    }
}
