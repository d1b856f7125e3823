//! From computed layers to published ones.

use core::ops::Range;

use lynx_engine::{RequestId, SequenceKv, StepObserver};
use lynx_proto::engine::v1::{Published, from_engine};
use lynx_units::Timestamp;

use super::tell;
use crate::clock::{Clock, Moment};
use crate::request::{Request, Task};
use crate::session::Outbox;

/// Watches one step.
pub(super) struct Watch<'a> {
    clock: Clock,
    start: Moment,
    agent: Option<&'a Outbox>,
    requests: &'a [Request],
    /// The layer that was reported last, from when to when.
    layer: Option<usize>,
    times: (Timestamp, Timestamp),
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        clock: Clock,
        start: Moment,
        agent: Option<&'a Outbox>,
        requests: &'a [Request],
    ) -> Self {
        Self {
            clock,
            start,
            agent,
            requests,
            layer: None,
            times: (start.engine, start.engine),
        }
    }
}

impl StepObserver for Watch<'_> {
    fn layer_ready(&mut self, id: RequestId, layer: usize, tokens: Range<u32>, _: SequenceKv<'_>) {
        if self.layer != Some(layer) {
            // The layer before ended when this one began. Its other requests come in the same moment.
            self.layer = Some(layer);
            self.times = (self.times.1, self.clock.monotonic());
        }
        let Some(request) = self.requests.iter().find(|request| request.id == id) else {
            return;
        };
        let Task::Prefill { from_token, .. } = request.task else {
            return;
        };
        let first_token = tokens.start.max(from_token);
        if first_token >= tokens.end {
            return;
        }
        let (began, ended) = self.times;
        let published = Published {
            request: request.number,
            layer: u32::try_from(layer).unwrap_or(u32::MAX),
            first_token,
            end_token: tokens.end,
            start_unix_ns: self.start.and(began).unix_ns,
            end_unix_ns: self.start.and(ended).unix_ns,
        };
        tell(self.agent, from_engine::Kind::Published(published));
    }
}
