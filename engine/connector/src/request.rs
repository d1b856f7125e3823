//! One request of the agent's: whose its blocks are, and what the agent is told about it.

use std::sync::Arc;

use lynx_engine::{EngineEvent, FinishReason, Logprobs, RequestId, Tokenizer};
use lynx_proto::engine::v1 as api;

use crate::clock::Moment;
use crate::phases::Phases;
use crate::text::{Text, Told};

/// A request in progress, or one that has ended and whose blocks are still the agent's.
#[derive(Debug)]
pub(crate) struct Request {
    /// The agent's number for it.
    pub(crate) number: u64,
    /// The engine's.
    pub(crate) id: RequestId,
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) phases: Phases,
    pub(crate) ended: bool,
    pub(crate) task: Task,
}

/// What is to be done for it.
#[derive(Debug)]
pub(crate) enum Task {
    /// Its prompt's KV is published from this token on.
    Prefill {
        from_token: u32,
        /// Whether the agent has given it up already.
        released: bool,
    },
    /// Its output is told.
    Answer(Box<Answer>),
}

/// An output in progress.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: Option<Text>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Whether its tokens are told with their log probabilities.
    pub(crate) wants_logprobs: bool,
    pub(crate) blocks: Blocks,
    /// Why its KV is of no use, if it is not.
    pub(crate) spoilt: Option<String>,
}

/// Whose the blocks of a prompt are, by the rules of the engine API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// The agent's, from the beginning to its first word about them.
    Expected,
    /// The agent's for as long as it has the grant.
    Granted,
    /// The engine's, and more is to come.
    Lent,
    /// The engine's.
    Own,
}

impl Blocks {
    /// Whether the agent writes them.
    pub(crate) const fn are_the_agents(self) -> bool {
        matches!(self, Self::Expected | Self::Granted)
    }

    /// Whether the agent has not said yet that all is there, or nothing will be.
    pub(crate) const fn are_awaited(self) -> bool {
        !matches!(self, Self::Own)
    }
}

impl Request {
    /// The output, where it has one.
    pub(crate) fn answer(&mut self) -> Option<&mut Answer> {
        match &mut self.task {
            Task::Answer(answer) => Some(answer),
            Task::Prefill { .. } => None,
        }
    }

    /// Whether the agent writes its blocks.
    pub(crate) fn is_the_agents(&self) -> bool {
        matches!(&self.task, Task::Answer(answer) if answer.blocks.are_the_agents())
    }

    /// Whether it waits for KV.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(&self.task, Task::Answer(answer) if answer.blocks.are_awaited())
    }

    /// Whether nobody needs to remember it any more.
    pub(crate) fn is_over(&self) -> bool {
        let released = match &self.task {
            Task::Prefill { released, .. } => *released,
            Task::Answer(answer) => !answer.blocks.are_the_agents(),
        };
        self.ended && released
    }

    /// The messages for what happened to it between `start` and `end`.
    pub(crate) fn tell(
        &mut self,
        events: &[EngineEvent],
        start: Moment,
        end: Moment,
    ) -> Vec<api::from_engine::Kind> {
        self.phases.see(events, start, end);
        let mut said = Vec::new();
        let mut progress = Vec::new();
        let mut finished = None;
        for event in events {
            match event {
                EngineEvent::PrefillDone {
                    first, logprobs, ..
                } => {
                    self.phases
                        .prompted(self.prompt_tokens, self.cached_tokens, end);
                    if let Task::Prefill { .. } = self.task {
                        said.push(api::from_engine::Kind::PrefillDone(api::PrefillDone {
                            request: self.number,
                            first_token: *first,
                            logprobs: logprobs.as_deref().map(bare),
                        }));
                    }
                }
                EngineEvent::Finished { reason, .. } => finished = Some(*reason),
                other => {
                    if let Task::Answer(answer) = &mut self.task {
                        progress.extend(answer.event(other).map(|kind| api::Event {
                            start_unix_ns: start.unix_ns,
                            end_unix_ns: end.unix_ns,
                            kind: Some(kind),
                        }));
                    }
                }
            }
        }
        if !progress.is_empty() {
            said.push(api::from_engine::Kind::Progress(api::Progress {
                request: self.number,
                events: progress,
            }));
        }
        said.extend(finished.map(|reason| self.finish(reason, end)));
        said
    }

    /// The last word.
    pub(crate) fn finish(&mut self, reason: FinishReason, end: Moment) -> api::from_engine::Kind {
        self.ended = true;
        self.phases.finish();
        let told = self.answer().and_then(|answer| answer.last_words(reason));
        let (rest, logprobs) = told.unwrap_or_default();
        let reason = match reason {
            FinishReason::StopToken | FinishReason::StopString => api::FinishReason::Stop,
            FinishReason::Length => api::FinishReason::Length,
            FinishReason::Aborted => api::FinishReason::Aborted,
        };
        api::from_engine::Kind::Finished(api::Finished {
            request: self.number,
            reason: reason.into(),
            rest,
            end_unix_ns: end.unix_ns,
            logprobs,
        })
    }
}

impl Answer {
    /// What is left to be told, with the log probabilities of the tokens that it is of.
    fn last_words(&mut self, reason: FinishReason) -> Option<(String, Vec<api::TokenLogprobs>)> {
        let told = self.text.take()?.finish(reason);
        Some((told.text, named(&self.tokenizer, &told.logprobs)))
    }

    fn event(&mut self, event: &EngineEvent) -> Option<api::event::Kind> {
        let text = self.text.as_mut()?;
        match event {
            EngineEvent::Token {
                index,
                token,
                provisional,
                logprobs,
                ..
            } => {
                let told = if *provisional {
                    Told {
                        text: text.draft(*token),
                        logprobs: Vec::new(),
                    }
                } else {
                    text.verify(*token, logprobs.as_deref().cloned())
                };
                Some(api::event::Kind::Token(api::Token {
                    index: *index,
                    token: *token,
                    text: told.text,
                    provisional: *provisional,
                    logprobs: named(&self.tokenizer, &told.logprobs),
                }))
            }
            EngineEvent::Retracted { from_index, .. } => {
                text.retract(*from_index);
                let from_index = *from_index;
                Some(api::event::Kind::Retracted(api::Retracted { from_index }))
            }
            EngineEvent::Redrafted { drafted, kept, .. } => {
                Some(api::event::Kind::Redrafted(checked(*drafted, *kept)))
            }
            EngineEvent::Verified {
                drafted, accepted, ..
            } => Some(api::event::Kind::Verified(checked(*drafted, *accepted))),
            EngineEvent::Recomputing { reason, .. } => {
                let reason = reason.clone();
                Some(api::event::Kind::Recomputing(api::Recomputing { reason }))
            }
            EngineEvent::PrefillDone { .. }
            | EngineEvent::Preempted { .. }
            | EngineEvent::Finished { .. } => None,
        }
    }
}

/// What another engine needs to know of them.
fn bare(logprobs: &Logprobs) -> api::TokenLogprobs {
    let bare = |known: &lynx_engine::Logprob| api::Logprob {
        token: known.token,
        logprob: known.logprob,
        ..api::Logprob::default()
    };
    api::TokenLogprobs {
        chosen: Some(bare(&logprobs.chosen)),
        top: logprobs.top.iter().map(bare).collect(),
    }
}

/// What a client needs to know of them.
fn named(tokenizer: &Tokenizer, all: &[Logprobs]) -> Vec<api::TokenLogprobs> {
    let name = |known: &mut api::Logprob| {
        known.bytes = tokenizer.piece(known.token).to_vec();
        tokenizer.name(known.token).clone_into(&mut known.name);
    };
    let mut all: Vec<_> = all.iter().map(bare).collect();
    for one in &mut all {
        one.chosen.iter_mut().chain(&mut one.top).for_each(name);
    }
    all
}

const fn checked(drafted: u32, kept: u32) -> api::Checked {
    api::Checked { drafted, kept }
}
