//! Answers as they come: server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use lynx_proto::engine::v1::TokenLogprobs;
use serde_json::{Value, json};

use super::answer::{Head, Usage};
use super::choices::{Choices, lost};
use super::error::ApiError;
use super::exchange::Exchange;
use super::logprobs::Told;
use crate::requests::{Finish, Generated};
use crate::timeline::Event;

/// What a client wants beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What it took, at the end.
    pub(super) usage: bool,
    /// How likely tokens were.
    pub(super) logprobs: bool,
    /// Tokens that are not verified.
    pub(super) provisional: bool,
    /// What happens.
    pub(super) timeline: bool,
}

/// An answer's chunks. A client that goes away drops them, and with them `events`: that aborts every choice.
pub(super) struct Chunks {
    head: Head,
    wanted: Wanted,
    usage: Usage,
    exchange: Exchange,
    events: Choices,
    /// Of each choice.
    told: Vec<Told>,
    /// Choices that have not ended.
    open: usize,
    pending: VecDeque<Sent>,
    is_over: bool,
}

impl Chunks {
    pub(super) fn new(
        head: Head,
        wanted: Wanted,
        usage: Usage,
        exchange: Exchange,
        (events, choices): (Choices, usize),
    ) -> Self {
        let mut chunks = Self {
            head,
            wanted,
            usage,
            exchange,
            events,
            told: vec![Told::default(); choices],
            open: choices,
            pending: VecDeque::new(),
            is_over: false,
        };
        for index in 0..choices {
            if let Some(opening) = chunks.head.opening(index) {
                chunks.push(opening);
            }
        }
        chunks
    }

    /// The answer as a stream.
    pub(super) fn respond(self) -> Response {
        Sse::new(stream::unfold(self, Self::next))
            .keep_alive(KeepAlive::default())
            .into_response()
    }

    async fn next(mut self) -> Option<(Result<Sent, Infallible>, Self)> {
        loop {
            if let Some(sent) = self.pending.pop_front() {
                return Some((Ok(sent), self));
            }
            if self.is_over {
                return None;
            }
            match self.events.next().await {
                Some((index, generated)) => self.take(index, generated),
                None => self.fail(&lost().into()),
            }
        }
    }

    /// Something happened to a choice.
    pub(super) fn take(&mut self, index: usize, generated: Generated) {
        if self.is_over {
            return;
        }
        match generated {
            Generated::Accepted { .. } => {}
            Generated::Token {
                index: place,
                token,
                text,
                provisional,
                logprobs,
            } => {
                if !provisional {
                    self.exchange.token();
                    self.text(index, &text, &logprobs);
                }
                let t = self.exchange.seconds();
                let event = Event::Token {
                    index: place,
                    token,
                    text,
                    t,
                    provisional,
                };
                self.provisional(index, &event);
            }
            Generated::Retracted { from_index } => {
                let t = self.exchange.seconds();
                self.provisional(index, &Event::Retracted { from_index, t });
            }
            Generated::Happened(event) => self.happened(index, &event),
            Generated::Finished {
                reason,
                rest,
                logprobs,
                completion_tokens,
                anchor,
                memory_bytes,
            } => {
                self.text(index, &rest, &logprobs);
                let summary = Event::Summary {
                    anchor,
                    memory_bytes,
                };
                self.happened(index, &summary);
                self.finish(index, reason, completion_tokens);
            }
            Generated::Failed(refusal) => self.fail(&refusal.into()),
        }
    }

    fn text(&mut self, index: usize, text: &str, logprobs: &[TokenLogprobs]) {
        if text.is_empty() && logprobs.is_empty() {
            return;
        }
        let logprobs = if self.wanted.logprobs {
            self.told[index].json(self.head.form, logprobs)
        } else {
            Value::Null
        };
        self.push(self.head.text(index, text, logprobs));
    }

    /// The last choice ends the stream.
    fn finish(&mut self, index: usize, reason: Finish, completion_tokens: u32) {
        self.usage.completion = self.usage.completion.saturating_add(completion_tokens);
        self.push(self.head.end(index, reason));
        self.open = self.open.saturating_sub(1);
        if self.open > 0 {
            return;
        }
        if self.wanted.usage {
            self.push(self.head.usage(self.usage));
        }
        self.pending.push_back(Sent::default().data("[DONE]"));
        self.exchange.finish(reason, self.usage.completion);
        self.is_over = true;
    }

    /// The timeline tells the same, with better times.
    fn provisional(&mut self, index: usize, event: &Event) {
        if self.wanted.provisional && !self.wanted.timeline {
            self.event(index, event);
        }
    }

    /// A timeline alone does not tell what may yet be retracted.
    fn happened(&mut self, index: usize, event: &Event) {
        let tells_provisional = matches!(
            event,
            Event::Token {
                provisional: true,
                ..
            } | Event::Retracted { .. }
        );
        if self.wanted.timeline && (self.wanted.provisional || !tells_provisional) {
            self.event(index, event);
        }
    }

    /// Whose event it is, is told where there are several choices.
    fn event(&mut self, index: usize, event: &Event) {
        let mut chunk = self.head.event(event);
        if self.told.len() > 1 {
            chunk["lynx"]["choice"] = json!(index);
        }
        self.push(chunk);
    }

    /// The status has been sent: the error is the last thing in the stream, and there is no `[DONE]`.
    fn fail(&mut self, error: &ApiError) {
        let log = self.exchange.log();
        log.in_scope(|| self.exchange.fail(error));
        let sent = Sent::default().event("error");
        self.pending.push_back(sent.data(error.body().to_string()));
        self.is_over = true;
    }

    /// Who wants the usage sees it in every chunk, and `null` before the last.
    fn push(&mut self, mut chunk: Value) {
        if self.wanted.usage && chunk.get("usage").is_none() {
            chunk["usage"] = Value::Null;
        }
        self.pending
            .push_back(Sent::default().data(chunk.to_string()));
    }
}
