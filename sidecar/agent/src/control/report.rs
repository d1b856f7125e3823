//! A report: how the agent is, and what was counted since the last one.

use lynx_proto::operator::v1::Report;

use super::Sources;
use crate::counters::Counters;

/// What was counted up to some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    anchor_bytes: u64,
    residual_bytes: u64,
    drafts: u64,
    drafted: u64,
    accepted: u64,
    verified: u64,
    transfers: u64,
    kv_bytes: u64,
    anchors: u64,
    time_to_anchor_ns: u64,
}

impl Totals {
    /// Now.
    pub(super) fn read(counters: &Counters) -> Self {
        Self {
            anchor_bytes: counters.anchor_bytes.get(),
            residual_bytes: counters.residual_bytes.get(),
            drafts: counters.drafts.sum(|of| &of.drafts),
            drafted: counters.drafts.sum(|of| &of.drafted),
            accepted: counters.drafts.sum(|of| &of.accepted),
            verified: counters.verified_tokens.get(),
            transfers: counters.transfers_begun.get(),
            kv_bytes: counters.transfer_kv_bytes.get(),
            anchors: counters.time_to_anchor.count(),
            time_to_anchor_ns: counters.time_to_anchor.sum_nanos(),
        }
    }
}

/// What is to be reported at `now`, where the last report was made at `before`.
pub(super) fn report(sources: &Sources, before: &Totals, now: &Totals) -> Report {
    let status = sources.status.borrow();
    let attachment = sources.attachment.borrow();
    // An engine that went away is no error of its own, one that does not fit is.
    let refused = attachment
        .error
        .as_ref()
        .filter(|_| attachment.engine.is_none());
    let attach_error = status.attach_error.as_ref().or(refused);
    Report {
        ready: status.ready,
        draining: sources.drain.is_draining(),
        in_flight: sources.drain.left(),
        running: status.running,
        waiting: status.waiting,
        pending_kv_bytes: status.pending_kv_bytes,
        links: status.links.clone(),
        anchor_bytes: now.anchor_bytes - before.anchor_bytes,
        residual_bytes: now.residual_bytes - before.residual_bytes,
        drafted_tokens: now.drafted - before.drafted,
        accepted_tokens: now.accepted - before.accepted,
        verified_tokens: now.verified - before.verified,
        token_time_ns: status.token_time_ns,
        transfer_kv_bytes: mean(
            now.kv_bytes - before.kv_bytes,
            now.transfers - before.transfers,
        ),
        time_to_anchor_ns: mean(
            now.time_to_anchor_ns - before.time_to_anchor_ns,
            now.anchors - before.anchors,
        ),
        attach_error: attach_error.cloned().unwrap_or_default(),
        anchor_eighths: status.anchor_eighths,
        drafts: now.drafts - before.drafts,
    }
}

/// Zero where there was none.
fn mean(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}
