//! Whether a link keeps its residual credit back for the anchor of another.

use core::time::Duration;

use lynx_units::Timestamp;

/// Keeps back while another link receives an anchor, but not for ever: after [`Withhold::LIMIT`] one more helping is
/// granted and counted, so that a residual makes some progress towards its deadline on a node that is never quiet.
#[derive(Debug, Default)]
pub(crate) struct Withhold {
    since: Option<Timestamp>,
    recheck: Timestamp,
    total: Duration,
    starved: u64,
}

impl Withhold {
    /// Longest time without residual credit.
    pub(crate) const LIMIT: Duration = Duration::from_millis(250);
    /// How often to look whether the others are done: links don't wake each other.
    const RECHECK: Duration = Duration::from_millis(5);

    /// Whether more may be granted at `now`, where `others_active` says if another link receives an anchor.
    pub(crate) fn may_grant(&mut self, others_active: bool, now: Timestamp) -> bool {
        if !others_active {
            self.rest(now);
            return true;
        }
        let since = self.since.unwrap_or(now);
        let kept = now - since;
        self.recheck = now + Self::RECHECK;
        if kept < Self::LIMIT {
            self.since = Some(since);
            return false;
        }
        self.since = Some(now);
        self.total += kept;
        self.starved += 1;
        true
    }

    /// There is nothing to grant at `now`, so nothing is kept back.
    pub(crate) fn rest(&mut self, now: Timestamp) {
        if let Some(since) = self.since.take() {
            self.total += now - since;
        }
    }

    /// When to ask again; `None` where nothing is kept back.
    pub(crate) fn recheck(&self) -> Option<Timestamp> {
        self.since.map(|_| self.recheck)
    }

    /// How long credit was kept back in all, without the present time.
    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    /// How often the limit was reached.
    pub(crate) const fn starved(&self) -> u64 {
        self.starved
    }
}
