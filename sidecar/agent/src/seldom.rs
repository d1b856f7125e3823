//! What is said now and then, however often it happens: strangers must not fill the log.

use std::time::Duration;

use tokio::time::Instant;

/// Says when something may be said again.
#[derive(Debug)]
pub(crate) struct Seldom {
    pause: Duration,
    last: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Something that is said once in `pause`.
    pub(crate) const fn new(pause: Duration) -> Self {
        Self {
            pause,
            last: None,
            unsaid: 0,
        }
    }

    /// It has happened. Where it may be said: how often it has happened unsaid since it was said last.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now - last < self.pause) {
            self.unsaid += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// For a log line: how many like it were not logged, where there were any.
pub(crate) const fn more(unsaid: u64) -> Option<u64> {
    if unsaid > 0 { Some(unsaid) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_once_in_a_while_and_counted() {
        let (mut line, start) = (Seldom::new(Duration::from_secs(60)), Instant::now());
        assert_eq!(line.happened(start), Some(0));
        for second in 1..60 {
            assert_eq!(line.happened(start + Duration::from_secs(second)), None);
        }
        assert_eq!(line.happened(start + Duration::from_secs(60)), Some(59));
        assert_eq!(line.happened(start + Duration::from_secs(61)), None);
    }
}
