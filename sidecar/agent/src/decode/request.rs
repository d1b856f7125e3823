//! One request, and the KV that it waits for.

use std::sync::Arc;
use std::time::Duration;

use lynx_transport::ReceiverHandle;
use lynx_units::{BitRate, Bytes, Epoch, Priority, Timestamp, TransferId, Width};
use tokio::task::AbortHandle;

use super::answer::Answer;
use super::attempt::Attempt;
use super::blocks::Blocks;
use super::pace::Pace;
use super::spans::Spans;
use crate::coding::Coding;
use crate::counters::InUse;
use crate::drafting::{Due, mean_width};
use crate::drain::InFlight;
use crate::method::Method;
use crate::peers::PeerId;
use crate::pool::Writable;
use crate::requests::Generate;
use crate::timeline::AnchorWidths;

/// A request between its arrival and its last word.
#[derive(Debug)]
pub(super) struct Request {
    /// The order of arrival; the number that the engine knows is another one, and new for each attempt.
    pub(super) key: u64,
    /// What is wanted; `None` where the engine's own front end has taken it.
    pub(super) wanted: Option<Box<Generate>>,
    /// How its KV travels, and the anchor's mean width, where it says.
    pub(super) method: Option<Method>,
    pub(super) width: Option<Width>,
    pub(super) answer: Answer,
    pub(super) spans: Spans,
    pub(super) pace: Pace,
    pub(super) kv: Kv,
    pub(super) anchor: Option<Anchor>,
    /// The transfer that was asked for.
    pub(super) transfer: Option<TransferId>,
    /// Whether the engine computes the prompt.
    pub(super) local: bool,
    /// Whether the prompt's KV in the engine is, or will be, good for the other choices of its group.
    pub(super) shares: bool,
    /// Whether another choice of its group has brought the prompt's KV: the engine has it in its prefix cache.
    pub(super) follows: bool,
    /// The conversation with the prefill agent, once its KV is here: its last word is about memory.
    pub(super) prefill_word: Option<AbortOnDrop>,
    pub(super) prefill_memory: Option<u64>,
    /// Whether nobody wants it any more, and the engine knows.
    pub(super) aborted: bool,
    /// Whether the engine has ended it, and only the agent is not done with its blocks.
    pub(super) finished: bool,
    /// Waits for the client to go.
    pub(super) client: Option<AbortOnDrop>,
    /// Counts it as in flight.
    pub(super) in_flight: Option<InFlight>,
}

/// A request's KV.
#[derive(Debug)]
pub(super) enum Kv {
    /// Nobody waits for any: not yet, not any more, or never.
    Settled,
    /// It is on its way.
    Loading(Box<Loading>),
}

/// An anchor's widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// K's mean in eighths of a bit.
    pub(super) k_eighths: u8,
    /// V's in bits.
    pub(super) v_bits: u8,
}

impl Anchor {
    /// The mean over K and V.
    pub(super) fn mean(self) -> Width {
        mean_width(self.k_eighths, self.v_bits)
    }

    /// As clients are told.
    pub(super) fn widths(self) -> AnchorWidths {
        AnchorWidths {
            k: f64::from(self.k_eighths) / 8.0,
            v: self.v_bits,
        }
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A transfer under way, and what it fills.
#[derive(Debug)]
pub(super) struct Loading {
    pub(super) transfer: TransferId,
    pub(super) blocks: Blocks,
    /// The right to write; `None` while a merge has it.
    pub(super) table: Option<Writable>,
    pub(super) coding: Arc<Coding>,
    /// The memory that it may take until all of it is merged; held for its life.
    pub(super) _room: InUse,
    /// On which link it comes.
    pub(super) on: (PeerId, Epoch),
    pub(super) link: ReceiverHandle,
    /// The conversation with the peer.
    pub(super) ask: Option<AbortOnDrop>,
    pub(super) began: Timestamp,
    pub(super) deadline: Timestamp,
    /// What it takes to ask another peer, until anything has come of this one.
    pub(super) attempt: Option<Box<Attempt>>,
    /// What of its segments has come, in bytes, by class.
    pub(super) received: [Bytes; 2],
    /// The link's bytes when it began, and when the timeline was last told.
    pub(super) before: [Bytes; 2],
    pub(super) told: [Bytes; 2],
    /// Whether the engine was told of an anchor.
    pub(super) is_anchored: bool,
}

impl Request {
    /// Something that the prefill agent is not, or not yet, asked for.
    pub(super) fn new(
        key: u64,
        wanted: Option<Box<Generate>>,
        answer: Answer,
        spans: Spans,
    ) -> Self {
        Self {
            key,
            method: wanted.as_ref().and_then(|wanted| wanted.method),
            width: wanted.as_ref().and_then(|wanted| wanted.anchor),
            wanted,
            answer,
            spans,
            pace: Pace::arrived(),
            kv: Kv::Settled,
            anchor: None,
            transfer: None,
            local: false,
            shares: false,
            follows: false,
            prefill_word: None,
            prefill_memory: None,
            aborted: false,
            finished: false,
            client: None,
            in_flight: None,
        }
    }
}

impl Request {
    /// The choices that it is one of; 0 where it is alone.
    pub(super) fn group(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.group)
    }

    /// Whether the prompt's KV is yet to come, and others may wait for it.
    pub(super) fn brings_prompt(&self) -> bool {
        let is_here = matches!(self.kv, Kv::Settled) && self.answer.verified() > 0;
        !self.aborted && !self.follows && !is_here
    }
}

impl Loading {
    /// Ends the transfer on its link. Without effect where it is over.
    pub(super) fn cancel(&mut self, why: &str) {
        self.ask = None;
        // A link that is over has no transfers.
        self.link.cancel(self.transfer, why).ok();
    }

    /// What this transfer gets of the link: its own mean, once that says something. The link's estimate is what it can carry
    /// at best.
    pub(super) fn rate(&self, now: Timestamp) -> BitRate {
        /// A mean over less than this is that of a start.
        const ENOUGH: Bytes = Bytes::from_kib(256);
        let received: Bytes = self.received.into_iter().sum();
        if received < ENOUGH {
            return self.link.stats().estimate.rate;
        }
        BitRate::from_delivery(received, self.age(now))
    }

    /// When what follows `level` is due.
    pub(super) fn due(&self, level: u8, now: Timestamp) -> Due {
        let rate = self.rate(now);
        let residual = self.received[Priority::Residual.index()];
        let all = rate.time_for(self.bytes_from(1) - residual);
        let next = usize::from(level) + 1;
        let from_next = (next < usize::from(self.coding.last_level()))
            .then(|| rate.time_for(self.bytes_from(next + 1)))
            .flatten();
        Due { all, from_next }
    }

    /// How long it has been under way.
    pub(super) fn age(&self, now: Timestamp) -> Duration {
        now - self.began
    }

    /// Bytes that the levels from `level` on take, level 1 being the first after the anchor, as far as they are known before
    /// they are here: the tail at its usual share.
    fn bytes_from(&self, level: usize) -> Bytes {
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
        Bytes::new(bytes + tail)
    }
}
