//! When residuals wait although they could go: for an anchor that is about to, and for an empty wire to measure.

use alloc::collections::BTreeMap;

use lynx_units::{Timestamp, TransferId};

use crate::limits::{PROBE_TIME, ROUND_TRIP_AGE};

/// What residuals wait for. Each wait has an end of its own, whatever the other side does.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Offers with anchors that can't go before an answer, and until when residuals wait for that.
    offers: BTreeMap<TransferId, Timestamp>,
    probe: Option<Probe>,
    /// The earliest moment for the next probe, so that a path that never answers in time is not emptied again and again.
    next_probe: Timestamp,
}

/// The wire is being emptied, or is empty and a ping is out.
#[derive(Clone, Copy, Debug)]
struct Probe {
    until: Timestamp,
    pinged: bool,
}

impl Hold {
    /// An anchor is there whose transfer is offered; the answer is waited for until then.
    pub(super) fn offer(&mut self, transfer: TransferId, until: Timestamp) {
        self.offers.insert(transfer, until);
    }

    /// An offer is answered, or over.
    pub(super) fn answered(&mut self, transfer: TransferId) {
        self.offers.remove(&transfer);
    }

    /// Begins to empty the wire, unless it was tried a short while ago.
    pub(super) fn probe(&mut self, now: Timestamp) {
        if self.next_probe <= now {
            self.next_probe = now + ROUND_TRIP_AGE / 4;
            self.probe = Some(Probe {
                until: now + PROBE_TIME,
                pinged: false,
            });
        }
    }

    /// Whether the wire has been emptied for a ping, which is to go out now; asking takes it as sent.
    pub(super) fn take_ping(&mut self) -> bool {
        let unsent = self.probe.as_mut().filter(|probe| !probe.pinged);
        unsent.is_some_and(|probe| {
            probe.pinged = true;
            true
        })
    }

    /// The round trip on an empty wire is known.
    pub(super) fn measured(&mut self) {
        self.probe = None;
    }

    /// Whether residuals wait at `now`.
    pub(super) fn holds(&self, now: Timestamp) -> bool {
        self.ends().any(|end| now < end)
    }

    /// Time has passed.
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        self.offers.retain(|_, end| now < *end);
        self.probe = self.probe.filter(|probe| now < probe.until);
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.ends().min()
    }

    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let probe = self.probe.map(|probe| probe.until);
        self.offers.values().copied().chain(probe)
    }
}
