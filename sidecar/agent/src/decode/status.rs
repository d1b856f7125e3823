//! What the rest of the agent, and the operator, are told of this role.

use super::Decoder;
use super::request::Kv;
use crate::config::Anchor;
use crate::control::Status;

impl Decoder {
    /// Tells the state, where it has changed.
    pub(super) fn tell_status(&self) {
        self.peers.count_memory();
        let status = self.current_status();
        self.status.send_if_modified(|told| {
            let changed = *told != status;
            *told = status;
            changed
        });
    }

    fn current_status(&self) -> Status {
        let report = self.session.as_ref().map(|session| session.report);
        let report = report.unwrap_or_default();
        let pending = self.requests.values().map(|request| match &request.kv {
            Kv::Loading(loading) => loading.coding.bf16_bytes(),
            Kv::Settled => 0,
        });
        let waiting = u32::try_from(self.waiting.len() + self.followers.len()).unwrap_or(u32::MAX);
        let width = match self.terms.anchor("") {
            Anchor::Fixed(width) => Some(width),
            Anchor::Adaptive(_) => self.last_width,
        };
        Status {
            ready: self.session.is_some(),
            running: report.running,
            waiting: report.waiting.saturating_add(waiting),
            free_blocks: report.free_blocks,
            preemptions: report.preemptions,
            pending_kv_bytes: pending.sum(),
            links: self.peers.links(),
            token_time_ns: report.token_time_ns,
            attach_error: self.unfit.clone(),
            anchor_eighths: width.map_or(0, |width| width.eighths().into()),
        }
    }
}
