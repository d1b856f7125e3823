//! From computed layers to published units.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::Result;
use lynx_engine::{RequestId, SequenceKv, StepObserver};
use lynx_transport::{SegmentPayload, SenderHandle, SharedBytes};
use lynx_units::{Timestamp, TransferId, UnitIndex};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock;
use crate::node::coding::Coding;
use crate::node::messages::{Answer, Report};
use crate::node::setup::{self, Setup, report};
use crate::run::Event;

/// What one request is owed.
pub(super) struct Serving {
    /// `None` for a prompt that is only computed and kept.
    pub(super) transfer: Option<Transfer>,
    pub(super) chunk: u32,
    pub(super) layer_start: Timestamp,
    pub(super) prompt_tokens: u32,
}

pub(super) struct Transfer {
    pub(super) id: TransferId,
    pub(super) coding: Coding,
    pub(super) answers: UnboundedSender<Answer>,
    pub(super) start: Timestamp,
    pub(super) link: SenderHandle,
    pub(super) published: Vec<bool>,
    /// Whether all units that were here before the request came are published.
    pub(super) cached_sent: bool,
}

/// Which token ranges of a transfer are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitRanges {
    First,
    All,
}

impl Transfer {
    /// Publishes the units whose last token is among `tokens`: of one layer, or of all.
    pub(super) fn publish_ended_in(
        &mut self,
        setup: &Setup,
        kv: SequenceKv<'_>,
        tokens: Range<u32>,
        layer: Option<usize>,
        ranges: UnitRanges,
    ) -> Result<()> {
        let per_range = self.coding.units().units_per_range();
        let take = if ranges == UnitRanges::First {
            1
        } else {
            usize::MAX
        };
        let ends: Vec<u32> = self
            .coding
            .units()
            .ranges()
            .map(|range| range.end)
            .take(take)
            .collect();
        for (range, _) in ends
            .iter()
            .enumerate()
            .filter(|(_, end)| tokens.contains(&(**end - 1)))
        {
            let units = match layer {
                Some(layer) => layer * 2..layer * 2 + 2,
                None => 0..per_range,
            };
            for unit in units {
                self.publish(setup, kv, range * per_range + unit)?;
            }
        }
        Ok(())
    }

    fn publish(&mut self, setup: &Setup, kv: SequenceKv<'_>, unit: usize) -> Result<()> {
        if std::mem::replace(&mut self.published[unit], true) {
            return Ok(());
        }
        let segments = self
            .coding
            .encode(&setup.codec, &setup.profile, unit, &kv)?;
        let payload = |(bytes, checksum)| SegmentPayload {
            bytes: SharedBytes::from(bytes),
            checksum,
        };
        let segments = segments.into_iter().map(payload).collect();
        // A link that is over has failed the transfer on the other side too.
        self.link
            .publish(self.id, UnitIndex(u32::try_from(unit)?), segments)
            .ok();
        Ok(())
    }

    pub(super) fn finished(&self, setup: &Setup) {
        let bytes = setup::memory_without(setup.model.weight_bytes());
        if let Some(bytes) = bytes {
            drop(self.answers.send(Answer::Memory { bytes }));
        }
    }
}

/// Publishes every layer while the engine computes the next.
pub(super) struct Watch<'a> {
    pub(super) setup: &'a Setup,
    pub(super) serving: &'a mut HashMap<RequestId, Serving>,
    pub(super) failed: Option<anyhow::Error>,
}

impl StepObserver for Watch<'_> {
    fn layer_ready(
        &mut self,
        request: RequestId,
        layer: usize,
        tokens: Range<u32>,
        kv: SequenceKv<'_>,
    ) {
        let Some(serving) = self.serving.get_mut(&request) else {
            return;
        };
        let now = clock::now();
        match &mut serving.transfer {
            Some(transfer) => {
                drop(transfer.answers.send(Answer::Happened {
                    event: Event::PrefillLayer {
                        chunk: serving.chunk,
                        layer: u32::try_from(layer).unwrap_or(u32::MAX),
                        start: clock::seconds_between(transfer.start, serving.layer_start),
                        end: clock::seconds_between(transfer.start, now),
                    },
                }));
                let published =
                    transfer.publish_ended_in(self.setup, kv, tokens, Some(layer), UnitRanges::All);
                self.failed = self.failed.take().or(published.err());
            }
            None if layer == 0 => report(&Report::Warming {
                done: tokens.end,
                total: serving.prompt_tokens,
            }),
            None => {}
        }
        serving.layer_start = clock::now();
    }
}
