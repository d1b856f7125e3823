//! One step: one forward pass over all requests that can go on.

use core::ops::Range;

use lynx_units::Timestamp;

use super::Engine;
use super::event::{EngineEvent, StepObserver};
use super::sequence::Sequence;
use crate::speculate::Action;
use crate::{ForwardError, KvPool, LogitsFor, Observer, Span, TokenId};

/// A step that could not be made; nothing has changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model can't evaluate this step's tokens")]
pub struct StepError(#[from] ForwardError);

/// What one request does in a step.
#[derive(Debug)]
struct Job {
    /// Its place among the sequences.
    sequence: usize,
    action: Action,
    tokens: Vec<TokenId>,
    start: u32,
    logits: LogitsFor,
}

impl Job {
    fn new(sequence: usize, action: Action, tokens: Vec<TokenId>, start: u32) -> Self {
        Self {
            sequence,
            action,
            tokens,
            start,
            logits: LogitsFor::All,
        }
    }

    /// The next chunk of a prompt, or of prompt and output where they are computed anew, of at most `budget` tokens.
    fn prefill(index: usize, sequence: &Sequence, budget: usize) -> Self {
        let all = sequence.computed_tokens();
        let range = sequence.valid..all.min(sequence.valid + budget);
        let last = range.end == all;
        Self {
            logits: if last {
                LogitsFor::Last
            } else {
                LogitsFor::None
            },
            ..Self::new(
                index,
                Action::Compute,
                sequence.known(range.clone()),
                position(range.start),
            )
        }
    }

    fn is_prefill(&self) -> bool {
        self.action == Action::Compute
    }

    fn end(&self) -> usize {
        self.start as usize + self.tokens.len()
    }

    fn range(&self) -> Range<u32> {
        self.start..position(self.end())
    }
}

impl Engine {
    /// Evaluates once what all requests can do now: the next chunks of prompts, drafts, verifications and plain decoding,
    /// in one forward pass. Returns what happened since events were last taken.
    ///
    /// # Errors
    /// Where the model refuses the tokens, which means that the engine is wrong about it.
    pub fn step(
        &mut self,
        now: Timestamp,
        observer: &mut dyn StepObserver,
    ) -> Result<Vec<EngineEvent>, StepError> {
        self.pace.begin(now);
        let jobs = self.plan(now);
        if !jobs.is_empty() {
            self.forward(&jobs, observer)?;
            self.feed_back(&jobs);
            self.end_finished();
        }
        let single = |job: &Job| job.tokens.len() == 1 && !job.is_prefill();
        let measured = !jobs.is_empty() && jobs.iter().all(single);
        self.pace.end(now, measured && !self.is_idle(now));
        Ok(self.take_events())
    }

    /// Whether a step at `now` would have nothing to do.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let token_time = self.pace.token_time();
        let mut sequences = self.sequences.iter().enumerate();
        sequences.all(|(index, sequence)| {
            let action = sequence.next(now, token_time);
            !self.can_go_on(index, &action)
        })
    }

    /// Until when an engine that is idle at `now` stays so, if nobody says anything; `None` for as long as that.
    pub fn wakes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let token_time = self.pace.token_time();
        self.sequences
            .iter()
            .filter_map(|sequence| sequence.wakes_at(token_time))
            .filter(|at| *at > now)
            .min()
    }

    /// In the order of submission: a prompt that is half done comes before one that is not begun, and blocks go to the
    /// oldest first.
    fn plan(&mut self, now: Timestamp) -> Vec<Job> {
        let mut budget = self.options.chunk_tokens.max(1) as usize;
        let mut jobs = Vec::new();
        for index in 0..self.sequences.len() {
            let action = self.sequences[index].next(now, self.pace.token_time());
            let (mut tokens, start) = match &action {
                Action::Wait | Action::Done => continue,
                Action::Compute => {
                    if budget > 0 && self.resume(index) {
                        let job = Job::prefill(index, &self.sequences[index], budget);
                        budget -= job.tokens.len();
                        jobs.push(job);
                    }
                    continue;
                }
                Action::Draft { token, position } | Action::Decode { token, position } => {
                    (vec![*token], *position)
                }
                Action::Redraft { tokens, position } | Action::Verify { tokens, position } => {
                    (tokens.clone(), *position)
                }
            };
            let is_draft = matches!(action, Action::Draft { .. });
            tokens.truncate(self.make_room(index, start, tokens.len(), is_draft));
            if !tokens.is_empty() {
                jobs.push(Job::new(index, action, tokens, start));
            }
        }
        jobs
    }

    fn forward(&mut self, jobs: &[Job], observer: &mut dyn StepObserver) -> Result<(), StepError> {
        let spans: Vec<_> = jobs
            .iter()
            .map(|job| Span {
                tokens: &job.tokens,
                start: job.start,
                blocks: &self.sequences[job.sequence].claim.blocks,
                logits: job.logits,
            })
            .collect();
        let mut reporter = Reporter {
            sequences: &self.sequences,
            jobs,
            observer,
        };
        self.evaluator
            .forward(&mut self.pool, &spans, &mut reporter)?;
        Ok(())
    }

    /// Samples the rows and tells every request.
    fn feed_back(&mut self, jobs: &[Job]) {
        let mut row = 0;
        for job in jobs {
            let sequence = &mut self.sequences[job.sequence];
            let rows = match job.logits {
                LogitsFor::None => 0,
                LogitsFor::Last => 1,
                LogitsFor::All => job.tokens.len(),
            };
            // A row's sample stands after its token.
            let index = (job.end() + 1 - rows).saturating_sub(sequence.prompt.len());
            let (evaluator, at) = (&self.evaluator, row);
            let logits = |i| evaluator.logits(at + i);
            let samples: Vec<_> = (0..rows)
                .map(|i| sequence.sample(logits(i), index + i))
                .collect();
            row += rows;
            if !samples.is_empty() {
                sequence.sampled(&samples, index, logits);
            }
            if job.is_prefill()
                && let Some(&first) = samples.first()
            {
                self.events.push(EngineEvent::PrefillDone {
                    request: sequence.id,
                    first,
                    logprobs: sequence.last_logprobs(),
                });
            }
            sequence.evaluated(&job.action, job.end());
            sequence.publish(&mut self.cache);
            sequence.report(&mut self.events);
        }
    }
}

/// Passes on what the forward pass says, request by request.
struct Reporter<'a> {
    sequences: &'a [Sequence],
    jobs: &'a [Job],
    observer: &'a mut dyn StepObserver,
}

impl Observer for Reporter<'_> {
    fn layer_written(&mut self, layer: usize, pool: &KvPool) {
        for job in self.jobs.iter().filter(|job| job.is_prefill()) {
            let sequence = &self.sequences[job.sequence];
            let Range { start, end } = job.range();
            let range = start..end.min(position(sequence.prompt.len()));
            if !range.is_empty() {
                self.observer
                    .layer_ready(sequence.id, layer, range, sequence.view(pool));
            }
        }
    }
}

/// A number of tokens as a position; no context is longer than a `u32`.
fn position(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
