//! Requests without a transfer, and what an engine makes of prompts for others.

use lynx_engine::{Adjust, Engine, EngineEvent, EngineOptions, KvSource, Request, Sampling, Stop};
use lynx_proto::engine::v1 as api;
use lynx_units::Timestamp;

use api::from_agent::Kind as Said;
use api::from_engine::Kind as Heard;

use super::{Agent, Link, opened};
use crate::Role;

/// A prompt of some tokens.
pub(super) fn prompt(length: usize) -> Vec<u32> {
    let text = "A lynx moves through deep snow at night. It hears a hare. ".repeat(40);
    opened().tokenizer.prompt(&text).unwrap()[..length].to_vec()
}

pub(super) fn submit(request: u64, tokens: Vec<u32>, max_tokens: u32) -> api::Submit {
    api::Submit {
        request,
        input: Some(api::submit::Input::Tokens(api::Tokens { ids: tokens })),
        max_tokens,
        ignore_eos: true,
        ..api::Submit::default()
    }
}

/// What the engine gives without any agent.
pub(super) fn expected(prompt: &[u32], max_tokens: u32) -> Vec<u32> {
    let opened = opened();
    let options = EngineOptions {
        blocks: 16,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(opened.model.clone(), opened.tokenizer.clone(), options).unwrap();
    engine
        .submit(Request {
            prompt: prompt.to_vec(),
            max_tokens,
            sampling: Sampling::GREEDY,
            adjust: Adjust::default(),
            top_logprobs: None,
            stop: Stop {
                ignore_eos: true,
                ..Stop::default()
            },
            kv: KvSource::Compute,
            retain: false,
        })
        .unwrap();
    let mut tokens = Vec::new();
    while !engine.is_idle(Timestamp::ORIGIN) {
        for event in engine.step(Timestamp::ORIGIN, &mut ()).unwrap() {
            if let EngineEvent::Token { token, .. } = event {
                tokens.push(token);
            }
        }
    }
    tokens
}

/// What a client has seen of one request.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) tokens: Vec<u32>,
    pub(super) text: String,
    pub(super) drafts: usize,
    pub(super) verified: Option<api::Checked>,
    pub(super) recomputed: Option<String>,
    pub(super) finished: Option<api::Finished>,
}

impl Seen {
    pub(super) fn see(&mut self, heard: Heard, number: u64) {
        match heard {
            Heard::Progress(progress) => {
                assert_eq!(progress.request, number);
                for event in progress.events {
                    assert!(event.start_unix_ns <= event.end_unix_ns);
                    self.event(event.kind.unwrap());
                }
            }
            Heard::Finished(finished) => {
                assert_eq!(finished.request, number);
                self.text += &finished.rest;
                self.finished = Some(finished);
            }
            other => panic!("{other:?}"),
        }
    }

    fn event(&mut self, event: api::event::Kind) {
        match event {
            api::event::Kind::Token(token) if token.provisional => self.drafts += 1,
            api::event::Kind::Token(token) => {
                assert_eq!(token.index as usize, self.tokens.len());
                self.tokens.push(token.token);
                self.text += &token.text;
            }
            api::event::Kind::Verified(checked) => self.verified = Some(checked),
            api::event::Kind::Recomputing(why) => self.recomputed = Some(why.reason),
            api::event::Kind::Prompted(_)
            | api::event::Kind::Retracted(_)
            | api::event::Kind::Redrafted(_) => {}
        }
    }

    pub(super) fn until_the_end(mut self, link: &mut Link, number: u64) -> Self {
        while self.finished.is_none() {
            self.see(link.hear(), number);
        }
        self
    }
}

pub(super) fn refused(link: &mut Link) -> (String, bool) {
    match link.hear() {
        Heard::Refused(refused) => (refused.reason, refused.retryable),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_a_transfer_gives_what_the_engine_alone_gives() {
    let (agent, mut link) = Agent::with_engine(Role::Decode, 16);
    assert_eq!(link.attach.model, "the-model");
    assert!(link.attach.generates && link.attach.context_tokens == 1024);
    let prompt = prompt(70);
    link.say(Said::Submit(submit(5, prompt.clone(), 12)));
    let seen = Seen::default().until_the_end(&mut link, 5);
    assert_eq!(seen.tokens, expected(&prompt, 12));
    assert_eq!(seen.text, opened().tokenizer.decode(&seen.tokens));
    let finished = seen.finished.unwrap();
    assert_eq!(finished.reason(), api::FinishReason::Length);
    let path = agent.pool_path();
    assert!(path.exists());
    agent.end().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_conversation_ends_before_its_stop_text() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    let ask = |request, stop: &[&str]| {
        let content = "Count from one to six in words, with spaces.".to_owned();
        let role = "user".to_owned();
        let messages = vec![api::ChatMessage { role, content }];
        Said::Submit(api::Submit {
            request,
            input: Some(api::submit::Input::Chat(api::Chat { messages })),
            max_tokens: 24,
            stop: stop.iter().map(|stop| (*stop).to_owned()).collect(),
            ..api::Submit::default()
        })
    };
    link.say(ask(1, &[]));
    let whole = Seen::default().until_the_end(&mut link, 1).text;
    // A piece from its middle, wherever tokens are cut.
    let chars: Vec<char> = whole.chars().collect();
    let stop: String = chars[chars.len() / 2..][..4].iter().collect();
    link.say(ask(2, &[&stop]));
    let seen = Seen::default().until_the_end(&mut link, 2);
    assert_eq!(seen.text, whole[..whole.find(&stop).unwrap()]);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Stop);
}

#[test]
fn every_layer_of_every_token_is_published_once() {
    let (_agent, mut link) = Agent::with_engine(Role::Prefill, 16);
    let layers = link.attach.layout.as_ref().unwrap().layers as usize;
    let prefill = |request, from_token| {
        Said::Prefill(api::Prefill {
            request,
            tokens: prompt(150),
            from_token,
            ..api::Prefill::default()
        })
    };
    // The second time, all but the last token is there; the third asks for less.
    for (request, cached, from_token) in [(1, 0, 0), (2, 149, 0), (3, 149, 128)] {
        link.say(prefill(request, from_token));
        let Heard::PrefillStarted(started) = link.hear() else {
            panic!("it did not start")
        };
        assert_eq!(started.cached_tokens, cached);
        assert_eq!(started.blocks.len(), 3);
        let mut published = vec![vec![0; 150]; layers];
        let first = loop {
            match link.hear() {
                Heard::Published(part) => {
                    assert!(part.request == request && part.start_unix_ns <= part.end_unix_ns);
                    let tokens = part.first_token as usize..part.end_token as usize;
                    for count in &mut published[part.layer as usize][tokens] {
                        *count += 1;
                    }
                }
                Heard::PrefillDone(done) => break done.first_token,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(first, expected(&prompt(150), 1)[0]);
        let once = |token: usize| i32::from(token >= cached.max(from_token) as usize);
        for layer in published {
            assert_eq!(layer, (0..150).map(once).collect::<Vec<_>>());
        }
        let seen = Seen::default().until_the_end(&mut link, request);
        assert!(seen.tokens.is_empty());
    }
    // All but the shared blocks are in use until they are released.
    for request in [1, 2, 3] {
        link.say(Said::Release(api::Release { request }));
    }
    link.wait_for_free_blocks(16);
}

#[test]
fn requests_that_ask_for_all_there_is_run_side_by_side_and_take_turns_where_room_ends() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 5);
    let prompts = [prompt(30), prompt(90)];
    for (request, prompt) in (1..).zip(&prompts) {
        link.say(Said::Submit(submit(request, prompt.clone(), u32::MAX)));
    }
    let mut seen = [(); 2].map(|()| Seen::default());
    while seen.iter().any(|seen| seen.finished.is_none()) {
        let heard = link.hear();
        let number = match &heard {
            Heard::Progress(progress) => progress.request,
            Heard::Finished(finished) => finished.request,
            other => panic!("{other:?}"),
        };
        seen[usize::from(number == 2)].see(heard, number);
        if number == 1 {
            let is_alone = seen[0].tokens.len() > 20 && seen[1].tokens.is_empty();
            assert!(!is_alone, "the second waits for the end of the first");
        }
    }
    for (seen, prompt) in seen.iter().zip(&prompts) {
        let room = 5 * 64 - u32::try_from(prompt.len()).unwrap();
        assert_eq!(seen.tokens, expected(prompt, room));
        let finished = seen.finished.as_ref().unwrap();
        assert_eq!(finished.reason(), api::FinishReason::Length);
    }
    link.wait_for_free_blocks(5);
    let report = link.report.as_ref().unwrap();
    assert!(report.preemptions > 0 && report.waiting == 0);
}

#[test]
fn what_can_not_be_done_is_refused_and_says_whether_to_try_again() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 4);
    link.say(Said::Submit(submit(1, prompt(256), 1)));
    let Heard::Refused(refusal) = link.hear() else {
        panic!("it was taken")
    };
    assert!(refusal.too_long && !refusal.retryable);
    let words = "256 tokens, and the engine room for 256: shorten it to 255 or fewer, or start the engine with a larger --max-tokens";
    assert!(refusal.reason.contains(words), "{}", refusal.reason);
    link.say(Said::Submit(api::Submit::default()));
    let (reason, retryable) = refused(&mut link);
    assert!(reason.contains("no input") && !retryable, "{reason}");
    link.say(Said::Prefill(api::Prefill::default()));
    assert!(refused(&mut link).0.contains("a decode engine"));
    let mut waiting = submit(2, prompt(170), 60);
    waiting.transfer = true;
    link.say(Said::Submit(waiting.clone()));
    assert!(matches!(link.hear(), Heard::Expect(_)));
    Seen::default().see(link.hear(), 2);
    link.say(Said::Submit(waiting));
    assert!(refused(&mut link).0.contains("number of its own"));
    link.say(Said::Submit(submit(3, prompt(20), 20)));
    let (reason, retryable) = refused(&mut link);
    let words = "room for 64 tokens of KV, and 0 of 256 are free";
    assert!(reason.contains(words) && retryable, "{reason}");
}
