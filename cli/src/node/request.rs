//! One request at the decode node: what of its KV is here, and what the parent is told.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lynx_engine::{EngineEvent, FinishReason, RequestId, SequenceKvMut, TextStream, TokenId};
use lynx_units::{Timestamp, TransferId, UnitIndex};

use super::coding::{Coding, Next, Received};
use super::messages::{AnchorWidths, Report};
use super::setup::{Setup, report};
use crate::clock::seconds_between;
use crate::run::Event;

/// A request in progress.
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) request: RequestId,
    pub(super) transfer: TransferId,
    pub(super) start: Timestamp,
    pub(super) coding: Coding,
    pub(super) anchor: Option<AnchorWidths>,
    units: Vec<Received>,
    /// Units with something to merge, each once.
    fresh: Vec<usize>,
    /// Whether the engine still waits for KV.
    pub(super) loading: bool,
    tokens: Vec<TokenId>,
    /// Drafted and not verified.
    drafts: Vec<TokenId>,
    /// Whether drafts were compared with a finer KV: then what stands at the end says little about the anchor.
    pub(super) redrafted: bool,
    /// The text up to the last verified token, and up to the last token at all.
    text: TextStream,
    draft: TextStream,
}

impl Running {
    pub(super) fn new(
        run: u64,
        request: RequestId,
        start: Timestamp,
        coding: Coding,
        anchor: Option<AnchorWidths>,
        text: TextStream,
    ) -> Self {
        let units = (0..coding.units().len())
            .map(|_| coding.receive())
            .collect();
        Self {
            run,
            request,
            transfer: TransferId(run),
            start,
            coding,
            anchor,
            units,
            fresh: Vec::new(),
            loading: true,
            tokens: Vec::new(),
            drafts: Vec::new(),
            redrafted: false,
            draft: text.clone(),
            text,
        }
    }

    /// Takes a segment that is whole.
    pub(super) fn take(&mut self, unit: UnitIndex, segment: usize, bytes: Vec<u8>) -> Result<()> {
        let unit = unit.0 as usize;
        let received = self
            .units
            .get_mut(unit)
            .context("a segment of a unit that the transfer doesn't have")?;
        received.take(segment, bytes)?;
        if received.merge_next() != Next::Nothing && !self.fresh.contains(&unit) {
            self.fresh.push(unit);
        }
        Ok(())
    }

    pub(super) fn has_fresh(&self) -> bool {
        self.loading && !self.fresh.is_empty()
    }

    /// Tokens drafted and not verified yet.
    pub(super) fn drafted(&self) -> u32 {
        u32::try_from(self.drafts.len()).unwrap_or(u32::MAX)
    }

    /// Brings everything that arrived since the last call into the engine's blocks.
    pub(super) fn merge(&mut self, setup: &Setup, mut kv: SequenceKvMut<'_>) -> Result<()> {
        for unit in self.fresh.drain(..) {
            let received = &mut self.units[unit];
            self.coding
                .decode(&setup.codec, &setup.profile, unit, received, &mut kv)?;
            received.merged();
        }
        Ok(())
    }

    /// The transfer is over, for better or worse: nothing of it is needed any more.
    pub(super) fn end_loading(&mut self) {
        self.loading = false;
        self.fresh = Vec::new();
        self.units = Vec::new();
    }

    /// Bytes that the levels from `level` on take, level 1 being the first after the anchor, as far as they are known before
    /// they are here: the tail at its usual share.
    pub(super) fn bytes_from(&self, level: usize) -> u64 {
        /// What the tail takes of an element in the mean, of 16 bits.
        const TAIL_SHARE: f64 = 2.6 / 16.0;
        let mut bytes = 0;
        let mut tail = 0.0;
        for unit in self.coding.units().units() {
            let steps = level..unit.plan.steps();
            bytes += steps
                .map(|step| unit.plan.step_bytes(step) as u64)
                .sum::<u64>();
            tail += unit.plan.bf16_bytes() as f64 * TAIL_SHARE;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, far below 2^53"
        )]
        let tail = if self.coding.has_tail() {
            tail as u64
        } else {
            0
        };
        bytes + tail
    }

    pub(super) fn happened(&self, event: Event) {
        report(&Report::Happened {
            run: self.run,
            event,
        });
    }

    /// Passes on what a step between `start` and `end` did for this request; the reason where it has ended.
    pub(super) fn tell(
        &mut self,
        events: &[EngineEvent],
        start: Timestamp,
        end: Timestamp,
    ) -> Option<FinishReason> {
        let (from, to) = (
            seconds_between(self.start, start),
            seconds_between(self.start, end),
        );
        let all_at_once = events.iter().any(|event| {
            matches!(
                event,
                EngineEvent::Verified { .. } | EngineEvent::Redrafted { .. }
            )
        });
        let mut finished = None;
        for event in events {
            match *event {
                EngineEvent::Token {
                    index,
                    token,
                    provisional,
                    ..
                } => {
                    let (start, end) = (from, to);
                    if provisional && !all_at_once {
                        self.happened(Event::Draft { index, start, end });
                    } else if !all_at_once && index > 0 {
                        self.happened(Event::Decode { index, start, end });
                    }
                    self.token(index, token, provisional, to);
                }
                EngineEvent::Verified {
                    drafted, accepted, ..
                } => {
                    self.happened(Event::Verify {
                        tokens: drafted,
                        accepted,
                        start: from,
                        end: to,
                    });
                }
                EngineEvent::Redrafted { drafted, kept, .. } => {
                    self.redrafted = true;
                    self.happened(Event::Redraft {
                        tokens: drafted,
                        kept,
                        start: from,
                        end: to,
                    });
                }
                EngineEvent::Retracted { from_index, .. } => {
                    self.retract(from_index);
                    self.happened(Event::Retracted { from_index, t: to });
                }
                EngineEvent::Finished { reason, .. } => finished = Some(reason),
                EngineEvent::PrefillDone { .. } | EngineEvent::Recomputing { .. } => {}
            }
        }
        finished
    }

    /// The drafts from this place of the output on are void.
    fn retract(&mut self, from_index: u32) {
        let kept = (from_index as usize).saturating_sub(self.tokens.len());
        self.drafts.truncate(kept);
        self.redraw_draft();
    }

    /// The draft's text begins where the verified text ends.
    fn redraw_draft(&mut self) {
        self.draft = self.text.clone();
        for &token in &self.drafts {
            self.draft.push(token);
        }
    }

    fn token(&mut self, index: u32, token: TokenId, provisional: bool, t: f64) {
        let text = if provisional {
            self.drafts.push(token);
            self.draft.push(token)
        } else {
            self.tokens.push(token);
            // A draft of this place, if there is one, is this token: wrong ones are retracted before.
            self.drafts.drain(..self.drafts.len().min(1));
            let text = self.text.push(token);
            self.redraw_draft();
            text
        };
        self.happened(Event::Token {
            index,
            text,
            t,
            provisional,
        });
    }

    /// Tells the parent that the request has ended.
    pub(super) fn finish(self, end: Timestamp, memory_bytes: [Option<u64>; 2]) {
        self.happened(Event::Finished {
            t: seconds_between(self.start, end),
        });
        report(&Report::Finished {
            run: self.run,
            tokens: self.tokens,
            anchor: self.anchor,
            memory_bytes,
        });
    }

    /// Seconds since the request came.
    pub(super) fn age(&self, now: Timestamp) -> Duration {
        now - self.start
    }
}
