//! Blocks that only their engine sees: it codes them by itself.
//!
//! Whoever would read or write a block here asks the engine to, and waits: so what is published, granted and given back is held to
//! the same tables as with every other pool, and the roles know of no other way. Not a queue of questions: one thread splits, or
//! one merges, and what is urgent next is known when the last answer has come. What the engine has coded is sent from where it
//! lies, and its room is taken until the last byte is sent; but one unit's room is never lent out like that, so that the next
//! question always finds some.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lynx_kernels::{Blocks, Cuts, Kind, KvShape, MAX_UNIT_TOKENS, RawTokens, UnitBuffer, UnitPlan};
use lynx_proto::engine::v1::{Coded, Form, FromAgent, Merge, Segment, Split, Unit, from_agent};
use lynx_transport::rdma::Lendable;
use lynx_units::Width;
use tokio::sync::mpsc::UnboundedSender;
use tonic::Status;

use super::staging::{Piece, Slot, Staging};

/// How long an engine may take for a unit.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Where segments begin.
const ALIGNMENT: usize = 16;

/// What goes out on an engine's stream.
pub(crate) type Outbox = UnboundedSender<Result<FromAgent, Status>>;

/// Why an engine hasn't coded a unit.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is gone.
    #[error("the engine is gone")]
    Gone,
    /// It says nothing.
    #[error("the engine has not coded a unit within {ANSWER_TIME:?}")]
    Silent,
    /// It says why.
    #[error("the engine can't code a unit: {0}")]
    Refused(String),
    /// Its file is full.
    #[error("the engine's staging file has no room for a unit: make it larger")]
    NoRoom,
    /// It says what can't be.
    #[error(
        "the engine has coded a unit of {wanted} segments in {found}, or one that is longer than it can be"
    )]
    Segments {
        /// How many there must be.
        wanted: usize,
        /// How many it told of.
        found: usize,
    },
}

/// An answer that nobody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unasked {
    #[error("which it was not asked, or has answered before")]
    Job,
    #[error("with a segment outside of the bytes that it was given")]
    Outside,
}

/// The blocks' engine.
#[derive(Debug)]
pub(super) struct ByEngine {
    staging: Arc<Staging>,
    outbox: Outbox,
    asked: Mutex<Questions>,
    /// What the largest unit takes.
    largest: usize,
}

#[derive(Debug, Default)]
struct Questions {
    next: u64,
    open: HashMap<u64, Question>,
    /// Whether there is nobody to ask any more, and whether that is because nothing was answered.
    is_over: bool,
    is_silent: bool,
}

#[derive(Debug)]
struct Question {
    /// Where in the file the answer is to be.
    within: Range<usize>,
    answer: SyncSender<Coded>,
}

/// One layer's K or V of a prompt, as its engine codes it.
#[derive(Debug)]
pub struct EngineValues<'a> {
    pub(super) engine: &'a ByEngine,
    pub(super) layer: usize,
    pub(super) kind: Kind,
    pub(super) blocks: Vec<u32>,
}

/// What the largest unit of such KV takes, coded in any way.
pub(super) fn largest_unit(shape: KvShape) -> usize {
    let tokens = u32::try_from(MAX_UNIT_TOKENS).unwrap_or(u32::MAX);
    let plan = |kind| {
        let cuts = Cuts::new(Width::FULL, 8).ok()?;
        UnitPlan::new(shape, kind, 0..tokens, RawTokens::none(), cuts).ok()
    };
    let plans = Kind::ALL.into_iter().filter_map(plan);
    // Each of up to ten segments begins where the alignment says.
    plans
        .map(|plan| bound(&plan, true) + 10 * ALIGNMENT)
        .max()
        .unwrap_or(0)
}

/// What a unit's segments take at most.
pub(super) fn bound(plan: &UnitPlan, with_tail: bool) -> usize {
    let segments = 0..plan.segments() - usize::from(!with_tail);
    let each = segments.map(|index| plan.segment_bound(index).next_multiple_of(ALIGNMENT));
    each.sum()
}

impl ByEngine {
    pub(super) fn new(staging: Staging, shape: KvShape, outbox: Outbox) -> Self {
        Self {
            staging: Arc::new(staging),
            outbox,
            asked: Mutex::default(),
            largest: largest_unit(shape),
        }
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file.
    pub(super) fn lendable(&self) -> Arc<dyn Lendable> {
        Arc::clone(&self.staging) as _
    }

    pub(super) fn is_lost(&self) -> bool {
        self.staging.is_lost()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.questions().is_silent
    }

    /// Nothing is answered any more.
    pub(super) fn end(&self) {
        let mut questions = self.questions();
        questions.is_over = true;
        questions.open.clear();
    }

    /// What the engine answers.
    pub(super) fn answered(&self, coded: Coded) -> Result<(), Unasked> {
        let mut questions = self.questions();
        let question = questions.open.remove(&coded.job).ok_or(Unasked::Job)?;
        let within = |segment: &Segment| {
            let range = range_of(segment)?;
            (range.start >= question.within.start && range.end <= question.within.end).then_some(())
        };
        if coded
            .segments
            .iter()
            .any(|segment| within(segment).is_none())
        {
            return Err(Unasked::Outside);
        }
        // Whoever has asked waits.
        drop(question.answer.try_send(coded));
        Ok(())
    }

    /// Asks, and waits for the answer.
    fn ask(
        &self,
        within: Range<usize>,
        kind: impl FnOnce(u64) -> from_agent::Kind,
    ) -> Result<Vec<Segment>, AskError> {
        let (answer, answered) = sync_channel(1);
        {
            let mut questions = self.questions();
            if questions.is_over {
                return Err(AskError::Gone);
            }
            questions.next += 1;
            let job = questions.next;
            questions.open.insert(job, Question { within, answer });
            let kind = Some(kind(job));
            let sent = self.outbox.send(Ok(FromAgent { kind }));
            sent.map_err(|_| AskError::Gone)?;
        }
        match answered.recv_timeout(ANSWER_TIME) {
            Ok(coded) if coded.error.is_empty() => Ok(coded.segments),
            Ok(coded) => Err(AskError::Refused(coded.error)),
            Err(RecvTimeoutError::Disconnected) => Err(AskError::Gone),
            Err(RecvTimeoutError::Timeout) => {
                let mut questions = self.questions();
                (questions.is_over, questions.is_silent) = (true, true);
                Err(AskError::Silent)
            }
        }
    }

    fn slot(&self, bytes: usize) -> Result<Slot, AskError> {
        self.staging.slot(bytes).ok_or(AskError::NoRoom)
    }
}

fn range_of(segment: &Segment) -> Option<Range<usize>> {
    let start = usize::try_from(segment.offset).ok()?;
    let end = start.checked_add(usize::try_from(segment.bytes).ok()?)?;
    Some(start..end)
}

impl EngineValues<'_> {
    fn unit(&self, plan: &UnitPlan, prompt_tokens: u32) -> Unit {
        let tokens = plan.tokens();
        Unit {
            layer: u32::try_from(self.layer).unwrap_or(u32::MAX),
            is_v: self.kind == Kind::V,
            first_token: tokens.start,
            end_token: tokens.end,
            prompt_tokens,
            anchor_k_eighths: plan.cuts().k().eighths().into(),
            anchor_v_bits: plan.cuts().v().into(),
            blocks: self.blocks.clone(),
        }
    }

    /// Has a unit of it split, of a prompt of so many tokens, with its tail where that is asked for: its segments and their checksums.
    ///
    /// # Errors
    /// Where the engine doesn't.
    pub fn split(
        &self,
        plan: &UnitPlan,
        prompt_tokens: u32,
        with_tail: bool,
    ) -> Result<Vec<(Piece, u64)>, AskError> {
        let mut slot = self.engine.slot(bound(plan, with_tail))?;
        let unit = self.unit(plan, prompt_tokens);
        let told = self.split_into(&slot, unit, (Form::Coded, with_tail))?;
        let wanted = plan.segments() - usize::from(!with_tail);
        let fits =
            |(index, segment): (usize, &Segment)| segment.bytes <= plan.segment_bound(index) as u64;
        if told.len() != wanted || !told.iter().enumerate().all(fits) {
            let found = told.len();
            return Err(AskError::Segments { wanted, found });
        }
        let ranges: Option<Vec<_>> = told.iter().map(range_of).collect();
        let ranges = ranges.unwrap_or_default();
        let end = ranges.iter().map(|range| range.end).max();
        slot.end_at(end.unwrap_or(0));
        let is_lent = self.engine.staging.has_room(self.engine.largest);
        let slot = Arc::new(slot);
        let piece = |range: Range<usize>| match Piece::lent(&slot, range) {
            lent if is_lent => lent,
            lent => lent.into_vec().into(),
        };
        let sums = told.iter().map(|segment| segment.checksum);
        Ok(ranges.into_iter().map(piece).zip(sums).collect())
    }

    fn split_into(
        &self,
        slot: &Slot,
        unit: Unit,
        (form, tail): (Form, bool),
    ) -> Result<Vec<Segment>, AskError> {
        let range = slot.range();
        self.engine.ask(range.clone(), |job| {
            from_agent::Kind::Split(Split {
                job,
                unit: Some(unit),
                form: form.into(),
                tail,
                offset: range.start as u64,
                capacity: range.len() as u64,
            })
        })
    }

    /// Has the approximation written that the head and so many steps give; with none, the very values.
    ///
    /// # Errors
    /// Where the engine doesn't, or the segments aren't what a split makes.
    pub fn merge(
        &self,
        plan: &UnitPlan,
        prompt_tokens: u32,
        (segments, sums): (&UnitBuffer, &[u64]),
        steps: Option<usize>,
    ) -> Result<(), AskError> {
        let count = steps.map_or(plan.segments(), |steps| steps + 1);
        let pieces = (0..count).map(|index| {
            // The tail lies behind the steps that a record has, which may be more than the plan's.
            let is_tail = index == plan.segments() - 1;
            let bytes = if is_tail {
                Some(&segments.tail[..])
            } else {
                segments.segment(index)
            };
            let sum = sums.get(index).copied().unwrap_or_default();
            (bytes.unwrap_or_default(), sum)
        });
        let unit = self.unit(plan, prompt_tokens);
        self.merge_from(
            &pieces.collect::<Vec<_>>(),
            unit,
            (Form::Coded, steps.unwrap_or(0)),
        )
    }

    fn merge_from(
        &self,
        pieces: &[(&[u8], u64)],
        unit: Unit,
        (form, steps): (Form, usize),
    ) -> Result<(), AskError> {
        let bytes = pieces
            .iter()
            .map(|(bytes, _)| bytes.len().next_multiple_of(ALIGNMENT));
        let mut slot = self.engine.slot(bytes.sum())?;
        let mut at = slot.range().start;
        let mut segments = Vec::with_capacity(pieces.len());
        for &(bytes, checksum) in pieces {
            slot.write(at, bytes);
            let (offset, bytes) = (at as u64, bytes.len() as u64);
            segments.push(Segment {
                offset,
                bytes,
                checksum,
            });
            at = (at + usize::try_from(bytes).unwrap_or(0)).next_multiple_of(ALIGNMENT);
        }
        let range = slot.range();
        self.engine.ask(range, |job| {
            from_agent::Kind::Merge(Merge {
                job,
                unit: Some(unit),
                form: form.into(),
                steps: u32::try_from(steps).unwrap_or(u32::MAX),
                segments,
            })
        })?;
        Ok(())
    }

    /// The values as they are.
    ///
    /// # Errors
    /// Where the engine doesn't give them.
    pub fn read(&self, plan: &UnitPlan, prompt_tokens: u32) -> Result<Blocks, AskError> {
        let slot = self.engine.slot(plan.bf16_bytes())?;
        let told = self.split_into(&slot, self.unit(plan, prompt_tokens), (Form::Values, false))?;
        let ranges: Vec<_> = told.iter().filter_map(range_of).collect();
        let [range] = &ranges[..] else {
            let found = ranges.len();
            return Err(AskError::Segments { wanted: 1, found });
        };
        let mut values = slot.read(range).as_chunks::<2>().0.iter();
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        for at in places(plan, &blocks) {
            let value = values.next().ok_or(AskError::Segments {
                wanted: 1,
                found: 1,
            })?;
            blocks.data_mut()[at] = u16::from_le_bytes(*value);
        }
        Ok(blocks)
    }

    /// Replaces them.
    ///
    /// # Errors
    /// Where the engine doesn't take them.
    pub fn write(
        &self,
        plan: &UnitPlan,
        prompt_tokens: u32,
        blocks: &Blocks,
    ) -> Result<(), AskError> {
        let values = places(plan, blocks).into_iter();
        let bytes: Vec<u8> = values
            .flat_map(|at| blocks.data()[at].to_le_bytes())
            .collect();
        let unit = self.unit(plan, prompt_tokens);
        self.merge_from(&[(&bytes, 0)], unit, (Form::Values, 0))
    }
}

/// Where a unit's values are, in the order `[token][head][channel]`.
fn places(plan: &UnitPlan, blocks: &Blocks) -> Vec<usize> {
    let shape = plan.shape();
    let of_token = |position| {
        (0..shape.kv_heads)
            .flat_map(move |head| (0..shape.head_dim).map(move |channel| (position, head, channel)))
    };
    let all = plan.tokens().flat_map(of_token);
    all.map(|(position, head, channel)| blocks.index(position, head, channel))
        .collect()
}
