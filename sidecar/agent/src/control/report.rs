//! A report: how the agent is, and what was counted since the last one.

use std::collections::BTreeMap;

use lynx_proto::operator::v1::{Report, WidthDrafts};

use super::Sources;
use crate::counters::{Counter, Counters};

/// What was counted up to some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    anchor_bytes: u64,
    residual_bytes: u64,
    /// Drafts, their tokens and those that stood, by eighths of a bit.
    drafts: BTreeMap<u32, [u64; 3]>,
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
            drafts: counters
                .drafts
                .by_eighths()
                .map(|(eighths, of)| {
                    let counts = [&of.drafts, &of.drafted, &of.accepted];
                    (eighths, counts.map(Counter::get))
                })
                .collect(),
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
    let drafts_by_width: Vec<_> = drafted(before, now).collect();
    let sum = |of: fn(&WidthDrafts) -> u64| drafts_by_width.iter().map(of).sum();
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
        drafted_tokens: sum(|of| of.drafted_tokens),
        accepted_tokens: sum(|of| of.accepted_tokens),
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
        drafts: sum(|of| of.drafts),
        drafts_by_width,
    }
}

/// What was drafted in between, by width.
fn drafted(before: &Totals, now: &Totals) -> impl Iterator<Item = WidthDrafts> {
    now.drafts
        .iter()
        .filter_map(|(eighths, [drafts, drafted, accepted])| {
            let known = before.drafts.get(eighths).copied().unwrap_or_default();
            (known[0] < *drafts).then(|| WidthDrafts {
                anchor_eighths: *eighths,
                drafts: drafts - known[0],
                drafted_tokens: drafted - known[1],
                accepted_tokens: accepted - known[2],
            })
        })
}

/// Zero where there was none.
fn mean(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}
