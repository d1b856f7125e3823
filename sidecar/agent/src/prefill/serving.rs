//! What one request to the engine owes, and to whom.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lynx_proto::peer::v1::{TransferEvent, transfer_event};
use lynx_telemetry::{Span, attributes};
use lynx_transport::{SenderHandle, Ticket};
use lynx_units::{Timestamp, TransferId};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::Status;

use super::board::Pace;
use super::service::Events;
use super::splitting::{Splitting, Work};
use crate::coding::Coding;
use crate::drain::InFlight;
use crate::pool::Readable;
use crate::requests::Refusal;

/// A request from `Prefill` until the engine is done with it and nobody waits for anything.
#[derive(Debug)]
pub(super) struct Serving {
    /// From `PrefillStarted` to `Release`.
    pub(super) blocks: Option<Arc<Readable>>,
    /// Jobs that the splitting thread has.
    pub(super) queued: usize,
    /// Whether all is computed.
    pub(super) done: bool,
    /// Whether the engine has said its last word.
    pub(super) finished: bool,
    /// Whether the engine is to be told to stop: once the splitting thread has let go of the blocks, since an engine may take
    /// them back at once.
    pub(super) to_abort: bool,
    pub(super) owed: Owed,
    /// Drops the question by HTTP, where there is one.
    pub(super) posted: Option<AbortHandle>,
}

/// What is owed for a request.
#[derive(Debug)]
pub(super) enum Owed {
    /// Nothing any more: the engine and the splitting thread are waited for.
    Nothing,
    /// A word when the prompt is computed.
    Warmed(oneshot::Sender<Result<(), Refusal>>),
    /// Its KV.
    Transfer(Box<Transfer>),
}

/// A transfer until its last byte is with the decode agent.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) id: TransferId,
    /// The decode agent's name, for people.
    pub(super) to: String,
    /// Which link it goes over.
    pub(super) ticket: Ticket,
    pub(super) link: SenderHandle,
    pub(super) coding: Arc<Coding>,
    /// `None` once everything is told.
    pub(super) events: Option<Events>,
    /// Whether the peer has every byte. What is not told yet may still matter: a fast link has the last layer before the
    /// engine has the first token.
    pub(super) delivered: bool,
    /// Whether every layer is told of.
    pub(super) timeline: bool,
    /// When it fails unless all of its KV is with the transport.
    pub(super) deadline: Instant,
    /// The same for the link.
    pub(super) link_deadline: Timestamp,
    /// What its jobs have in common; there is none before the engine has begun.
    pub(super) work: Option<Arc<Work>>,
    /// Layers of ranges of tokens that were given to the splitting thread.
    pub(super) asked: HashSet<(usize, usize)>,
    /// How many of them are with the transport, and how many bytes those are, by
    /// [`Priority::index`](lynx_units::Priority::index).
    pub(super) split: usize,
    pub(super) handed: [u64; 2],
    /// What computing it took.
    pub(super) pace: Pace,
    /// Whether all that was there before the request is given to the splitting thread.
    pub(super) cached_asked: bool,
    /// When the engine began, and when it last published anything, in nanoseconds since the Unix epoch.
    pub(super) computed_unix_ns: Range<u64>,
    pub(super) span: Span,
    /// For the drain.
    pub(super) in_flight: InFlight,
}

/// Which token ranges of a transfer are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitRanges {
    First,
    All,
}

impl Serving {
    pub(super) fn new(owed: Owed, posted: Option<AbortHandle>) -> Self {
        Self {
            blocks: None,
            queued: 0,
            done: false,
            finished: false,
            to_abort: false,
            owed,
            posted,
        }
    }

    /// Whether the engine has not said yet what becomes of it.
    pub(super) const fn is_awaited(&self) -> bool {
        !self.done && !self.finished
    }

    /// The transfer that is owed.
    pub(super) fn transfer(&mut self) -> Option<&mut Transfer> {
        match &mut self.owed {
            Owed::Transfer(transfer) => Some(transfer),
            Owed::Nothing | Owed::Warmed(_) => None,
        }
    }

    /// Has the splitting thread take the units whose last token is among `tokens`: of one layer, or of all.
    pub(super) fn split_ended_in(
        &mut self,
        splitting: &Splitting,
        tokens: &Range<u32>,
        layer: Option<usize>,
        ranges: UnitRanges,
    ) {
        let Owed::Transfer(transfer) = &mut self.owed else {
            return;
        };
        let Some(work) = &transfer.work else { return };
        let take = match ranges {
            UnitRanges::First => 1,
            UnitRanges::All => usize::MAX,
        };
        let layers = match layer {
            Some(layer) => layer..layer + 1,
            None => 0..work.blocks.shape().layers,
        };
        let units = transfer.coding.units().ranges().enumerate().take(take);
        for (range, _) in units.filter(|(_, range)| tokens.contains(&(range.end - 1))) {
            for layer in layers.clone() {
                if transfer.asked.insert((range, layer)) {
                    self.queued += 1;
                    splitting.split(work, range, layer);
                }
            }
        }
    }

    /// Ends what is owed for a transfer of which everything is told and delivered.
    pub(super) fn owe_nothing_more(&mut self) {
        if let Owed::Transfer(transfer) = &self.owed
            && transfer.delivered
            && transfer.events.is_none()
        {
            transfer.tell_bytes();
            self.owed = Owed::Nothing;
        }
    }

    /// When it is late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.owed {
            // Once all is with the transport, the link has the deadline.
            Owed::Transfer(transfer) if transfer.events.is_some() => Some(transfer.deadline),
            Owed::Transfer(_) | Owed::Nothing | Owed::Warmed(_) => None,
        }
    }

    /// Whether the agent will read no more of the blocks, though it still has them.
    pub(super) fn may_release(&self) -> bool {
        let read = match &self.owed {
            Owed::Transfer(transfer) => transfer.is_all_split(),
            Owed::Nothing | Owed::Warmed(_) => true,
        };
        self.blocks.is_some() && self.queued == 0 && (self.finished || self.done && read)
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.finished && self.blocks.is_none() && matches!(self.owed, Owed::Nothing)
    }
}

impl Transfer {
    /// Tells the decode agent. One that no longer listens is noticed by its stream's end.
    pub(super) fn tell(&self, kind: transfer_event::Kind) {
        if let Some(events) = &self.events {
            drop(events.send(Ok(TransferEvent { kind: Some(kind) })));
        }
    }

    /// Whether every unit is with the transport.
    pub(super) fn is_all_split(&self) -> bool {
        let units = self.coding.units();
        self.split * 2 == units.len()
    }

    /// Says in its span how much of it is with the transport, at its end.
    fn tell_bytes(&self) {
        for attribute in attributes::bytes_by_priority(self.handed) {
            self.span.set(attribute);
        }
    }

    /// Ends it with a reason, unless everything was told; the link is the caller's affair.
    pub(super) fn end(self, status: Status) {
        if let Some(work) = &self.work {
            work.over.store(true, Ordering::Release);
        }
        self.tell_bytes();
        self.span.fail(status.message());
        if let Some(events) = self.events {
            drop(events.send(Err(status)));
        }
        drop(self.in_flight);
    }
}
