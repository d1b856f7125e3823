//! Sums of what a deployment's agents reported since somebody last looked.

use std::collections::BTreeMap;
use std::time::Duration;

use lynx_policy::Drafts;
use lynx_proto::operator::v1::{Report, WidthDrafts};
use lynx_units::{Bytes, Width};

/// Sums over the reports of all agents of a deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Drafted and accepted tokens by the anchor's width in eighths of a bit.
    pub drafts: BTreeMap<u32, Drafts>,
    token_times: Mean,
    transfer_bytes: Mean,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mean {
    sum: u64,
    count: u64,
}

impl Window {
    /// One report more.
    pub(crate) fn add(&mut self, report: &Report) {
        for of in &report.drafts_by_width {
            self.add_drafts(of);
        }
        if report.drafts_by_width.is_empty() && report.drafted_tokens > 0 {
            self.add_drafts(&WidthDrafts {
                anchor_eighths: report.anchor_eighths,
                drafts: report.drafts,
                drafted_tokens: report.drafted_tokens,
                accepted_tokens: report.accepted_tokens,
            });
        }
        self.token_times.add(report.token_time_ns);
        self.transfer_bytes.add(report.transfer_kv_bytes);
    }

    fn add_drafts(&mut self, of: &WidthDrafts) {
        let drafts = self.drafts.entry(of.anchor_eighths).or_default();
        let accepted = of.accepted_tokens.min(of.drafted_tokens);
        drafts.drafts = drafts.drafts.saturating_add(of.drafts);
        drafts.drafted = drafts.drafted.saturating_add(of.drafted_tokens);
        drafts.accepted = drafts.accepted.saturating_add(accepted);
    }

    /// The drafts of each width that can be.
    pub fn drafts(&self) -> Vec<(Width, Drafts)> {
        let of_width = |(eighths, drafts): (&u32, &Drafts)| {
            let width = u8::try_from(*eighths).ok().and_then(Width::from_eighths)?;
            Some((width, *drafts))
        };
        self.drafts.iter().filter_map(of_width).collect()
    }

    /// The mean of the engines' times for a token.
    pub fn token_time(&self) -> Option<Duration> {
        self.token_times.get().map(Duration::from_nanos)
    }

    /// The mean size of a transfer's KV as BF16.
    pub fn transfer_bytes(&self) -> Option<Bytes> {
        self.transfer_bytes.get().map(Bytes::new)
    }
}

impl Mean {
    /// Zero stands for "not known" in a report.
    pub(super) fn add(&mut self, value: u64) {
        if value > 0 {
            self.sum = self.sum.saturating_add(value);
            self.count += 1;
        }
    }

    pub(super) fn get(self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}
