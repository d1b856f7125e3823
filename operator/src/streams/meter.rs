//! What one agent counts between its reports, as figures of a moment.

use std::time::Duration;

use lynx_proto::operator::v1::Report;
use lynx_units::Timestamp;

use super::window::Mean;

/// A rate is taken over this long at least: an agent reports at once when it becomes ready or drains.
const SPAN: Duration = Duration::from_secs(1);

/// Tokens that were verified, and times to anchors.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    tokens: u64,
    since: Timestamp,
    rate: f64,
    anchors: Mean,
}

impl Meter {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            tokens: 0,
            since: now,
            rate: 0.0,
            anchors: Mean::default(),
        }
    }

    /// One report more.
    pub(super) fn add(&mut self, report: &Report, now: Timestamp) {
        self.anchors.add(report.time_to_anchor_ns);
        self.tokens = self.tokens.saturating_add(report.verified_tokens);
        let span = now.saturating_since(self.since);
        if span >= SPAN {
            #[expect(clippy::cast_precision_loss, reason = "tokens of seconds")]
            let tokens = self.tokens as f64;
            self.rate = tokens / span.as_secs_f64();
            (self.tokens, self.since) = (0, now);
        }
    }

    /// Verified tokens in a second, of the last reports.
    pub(super) fn verified(&self) -> f64 {
        self.rate
    }

    /// The mean time to an anchor since the last call, in seconds; `None` where there was none.
    pub(super) fn take_time_to_anchor(&mut self) -> Option<f64> {
        let mean = std::mem::take(&mut self.anchors).get()?;
        Some(Duration::from_nanos(mean).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(millis))
    }

    fn verified(tokens: u64) -> Report {
        Report {
            verified_tokens: tokens,
            ..Report::default()
        }
    }

    #[test]
    fn a_report_that_comes_at_once_adds_to_the_rate_and_makes_none_of_its_own() {
        let mut meter = Meter::new(at(0));
        meter.add(&verified(100), at(2000));
        assert_eq!(meter.verified(), 50.0);
        meter.add(&verified(30), at(2001));
        assert_eq!(meter.verified(), 50.0);
        meter.add(&verified(50), at(4000));
        assert_eq!(meter.verified(), 40.0);
        meter.add(&verified(0), at(6000));
        assert_eq!(meter.verified(), 0.0);
    }

    #[test]
    fn a_time_is_told_once_and_a_report_without_one_says_nothing() {
        let mut meter = Meter::new(at(0));
        for millis in [100, 0, 300] {
            let report = Report {
                time_to_anchor_ns: millis * 1_000_000,
                ..Report::default()
            };
            meter.add(&report, at(millis));
        }
        assert_eq!(meter.take_time_to_anchor(), Some(0.2));
        assert_eq!(meter.take_time_to_anchor(), None);
    }
}
