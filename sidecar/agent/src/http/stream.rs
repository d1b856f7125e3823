//! Answers as they come: server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Head, Usage};
use super::error::ApiError;
use super::exchange::Exchange;
use crate::requests::Generated;
use crate::timeline::Event;

/// What a client wants beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What it took, at the end.
    pub(super) usage: bool,
    /// Tokens that are not verified.
    pub(super) provisional: bool,
    /// What happens.
    pub(super) timeline: bool,
}

/// An answer's chunks. A client that goes away drops them, and with them `events`: that aborts the request.
pub(super) struct Chunks {
    head: Head,
    wanted: Wanted,
    prompt_tokens: u32,
    exchange: Exchange,
    events: UnboundedReceiver<Generated>,
    pending: VecDeque<String>,
    is_over: bool,
}

impl Chunks {
    pub(super) fn new(
        head: Head,
        wanted: Wanted,
        prompt_tokens: u32,
        exchange: Exchange,
        events: UnboundedReceiver<Generated>,
    ) -> Self {
        let opening = head.opening().map(|chunk| chunk.to_string());
        Self {
            head,
            wanted,
            prompt_tokens,
            exchange,
            events,
            pending: opening.into_iter().collect(),
            is_over: false,
        }
    }

    /// The answer as a stream.
    pub(super) fn respond(self) -> Response {
        Sse::new(stream::unfold(self, Self::next))
            .keep_alive(KeepAlive::default())
            .into_response()
    }

    async fn next(mut self) -> Option<(Result<Sent, Infallible>, Self)> {
        loop {
            if let Some(data) = self.pending.pop_front() {
                return Some((Ok(Sent::default().data(data)), self));
            }
            if self.is_over {
                return None;
            }
            match self.events.recv().await {
                Some(generated) => self.take(generated),
                None => self.fail(&ApiError::lost()),
            }
        }
    }

    /// Something happened.
    pub(super) fn take(&mut self, generated: Generated) {
        match generated {
            Generated::Accepted { .. } => {}
            Generated::Token {
                index,
                token,
                text,
                provisional,
            } => self.token(index, token, text, provisional),
            Generated::Retracted { from_index } => {
                let t = self.exchange.seconds();
                self.provisional(Event::Retracted { from_index, t });
            }
            Generated::Happened(event) => self.happened(&event),
            Generated::Finished {
                reason,
                rest,
                completion_tokens,
                anchor,
                memory_bytes,
            } => {
                if !rest.is_empty() {
                    self.push(self.head.text(&rest));
                }
                self.happened(&Event::Summary {
                    anchor,
                    memory_bytes,
                });
                self.push(self.head.end(reason));
                if self.wanted.usage {
                    self.push(self.head.usage(Usage {
                        prompt: self.prompt_tokens,
                        completion: completion_tokens,
                    }));
                }
                self.pending.push_back("[DONE]".to_owned());
                self.exchange.finish(reason, completion_tokens);
                self.is_over = true;
            }
            Generated::Failed(refusal) => self.fail(&refusal.into()),
        }
    }

    fn token(&mut self, index: u32, token: u32, text: String, provisional: bool) {
        if !provisional {
            self.exchange.token();
            if !text.is_empty() {
                self.push(self.head.text(&text));
            }
        }
        let t = self.exchange.seconds();
        self.provisional(Event::Token {
            index,
            token,
            text,
            t,
            provisional,
        });
    }

    /// The timeline tells the same, with better times.
    fn provisional(&mut self, event: Event) {
        if self.wanted.provisional && !self.wanted.timeline {
            self.push(self.head.event(&event));
        }
    }

    /// A timeline alone does not tell what may yet be retracted.
    fn happened(&mut self, event: &Event) {
        let tells_provisional = matches!(
            event,
            Event::Token {
                provisional: true,
                ..
            } | Event::Retracted { .. }
        );
        if self.wanted.timeline && (self.wanted.provisional || !tells_provisional) {
            self.push(self.head.event(event));
        }
    }

    /// The status has been sent: the error is the last thing in the stream, and there is no `[DONE]`.
    fn fail(&mut self, error: &ApiError) {
        self.exchange.fail(error);
        self.push(error.body());
        self.is_over = true;
    }

    fn push(&mut self, chunk: Value) {
        self.pending.push_back(chunk.to_string());
    }
}
