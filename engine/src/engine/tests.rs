//! The engine over a model whose every answer is known, and over the real one.

mod crowded;
mod fake;
mod growing;
mod held;
mod real;
mod schedules;
mod small;

use std::collections::HashMap;

use lynx_units::Timestamp;

use super::*;
use crate::{Adjust, FinishReason, Sampling, Stop};

/// What a client of one request has seen.
#[derive(Debug, Default, PartialEq)]
struct Client {
    committed: Vec<TokenId>,
    /// Of the committed tokens, where the request asks for them.
    logprobs: Vec<Logprobs>,
    provisional: Vec<TokenId>,
    finished: Option<FinishReason>,
    drafted: u32,
    accepted: u32,
}

/// All clients. Checks that every request's events make sense.
#[derive(Debug, Default)]
struct Clients(HashMap<RequestId, Client>);

impl Clients {
    fn of(&self, id: RequestId) -> &Client {
        &self.0[&id]
    }

    fn see(&mut self, events: Vec<EngineEvent>) {
        for event in events {
            self.see_one(&event);
        }
    }

    fn see_one(&mut self, event: &EngineEvent) {
        match event {
            EngineEvent::PrefillDone { .. }
            | EngineEvent::Preempted { .. }
            | EngineEvent::Redrafted { .. }
            | EngineEvent::Recomputing { .. } => {}
            EngineEvent::Token {
                request,
                index,
                token,
                provisional,
                logprobs,
            } => {
                let client = self.live(*request);
                if *provisional {
                    assert_eq!(*logprobs, None, "nothing is known of a draft");
                    let known = client.committed.len() + client.provisional.len();
                    assert_eq!(*index as usize, known);
                    client.provisional.push(*token);
                } else {
                    assert_eq!(*index as usize, client.committed.len());
                    if !client.provisional.is_empty() {
                        assert_eq!(client.provisional.remove(0), *token);
                    }
                    client.committed.push(*token);
                    client.logprobs.extend(logprobs.as_deref().cloned());
                }
            }
            EngineEvent::Retracted {
                request,
                from_index,
            } => {
                let client = self.live(*request);
                let kept = *from_index as usize - client.committed.len();
                client.provisional.truncate(kept);
            }
            EngineEvent::Verified {
                request,
                drafted,
                accepted,
            } => {
                let client = self.live(*request);
                client.drafted += drafted;
                client.accepted += accepted;
            }
            EngineEvent::Finished { request, reason } => {
                let client = self.live(*request);
                assert!(client.provisional.is_empty());
                client.finished = Some(*reason);
            }
        }
    }

    fn live(&mut self, id: RequestId) -> &mut Client {
        let client = self.0.entry(id).or_default();
        assert_eq!(
            client.finished, None,
            "something followed the end of request {id}"
        );
        client
    }
}

/// Greedy, and never at an end before its `max_tokens`.
fn request_of(prompt: Vec<TokenId>, max_tokens: u32, kv: KvSource) -> Request {
    Request {
        prompt,
        max_tokens,
        sampling: Sampling::GREEDY,
        adjust: Adjust::default(),
        top_logprobs: None,
        stop: Stop {
            ignore_eos: true,
            ..Stop::default()
        },
        kv,
        retain: false,
    }
}

/// Steps until there is nothing to do, at one time.
fn run(engine: &mut Engine) -> Clients {
    let mut clients = Clients::default();
    while !engine.is_idle(Timestamp::ORIGIN) {
        clients.see(engine.step(Timestamp::ORIGIN, &mut ()).unwrap());
    }
    clients
}
