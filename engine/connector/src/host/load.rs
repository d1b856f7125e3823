//! How busy the engine is, told about once a second and after a change.

use std::time::Duration;

use lynx_proto::engine::v1::{Report, from_engine};
use lynx_units::Timestamp;

use super::Host;
use crate::clock::Moment;
use crate::memory;

/// How old a report may become.
const PERIOD: Duration = Duration::from_secs(1);

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Load {
    told: Option<(Timestamp, [usize; 2])>,
}

impl Load {
    /// How long until the next report, if nothing changes.
    pub(super) fn next_report(&self, now: Timestamp) -> Duration {
        self.told
            .map_or(PERIOD, |(at, _)| PERIOD.saturating_sub(now - at))
    }

    /// Whether it is time to tell this.
    fn is_due(&self, counts: [usize; 2], now: Timestamp) -> bool {
        self.told
            .is_none_or(|(at, before)| before != counts || now - at >= PERIOD)
    }
}

impl Host {
    /// Tells the agent, if there is one, and if there is something to tell.
    pub(super) fn report(&mut self, now: Moment) {
        if self.agent.is_none() {
            self.load = Load::default();
            return;
        }
        let live = self.requests.iter().filter(|request| !request.ended);
        let mut counts = [0; 2];
        for request in live {
            counts[usize::from(request.is_waiting())] += 1;
        }
        // They have tokens, and no blocks.
        let preempted = self.engine.preempted().min(counts[0]);
        counts[0] -= preempted;
        counts[1] += preempted + self.encoding.len();
        if !self.load.is_due(counts, now.engine) {
            return;
        }
        self.load.told = Some((now.engine, counts));
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let token_time = self.engine.token_time().as_nanos();
        let weights = self.opened.model.weight_bytes();
        self.tell(from_engine::Kind::Report(Report {
            running: number(counts[0]),
            waiting: number(counts[1]),
            free_blocks: number(self.engine.free_blocks()),
            token_time_ns: u64::try_from(token_time).unwrap_or(u64::MAX),
            memory_bytes: memory::peak_without(weights).unwrap_or(0),
            preemptions: self.engine.preemptions(),
        }));
    }
}
