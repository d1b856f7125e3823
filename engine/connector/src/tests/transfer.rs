//! KV that is copied from a prefill engine's pool into a decode engine's, bit by bit, under the rules of grants.

use std::fs::File;

use lynx_proto::engine::v1 as api;

use api::from_agent::Kind as Said;
use api::from_engine::Kind as Heard;

use super::plain::{Seen, expected, prompt, submit};
use super::pool::{Place, copy};
use super::{Agent, Link};
use crate::Role;

/// The bits of an anchor: sign, exponent and three more.
const ANCHOR: u16 = 0xfff0;

/// A prompt's KV at a prefill engine.
struct Source {
    _agent: Agent,
    _link: Link,
    file: File,
    blocks: Vec<u32>,
    first_token: u32,
}

fn computed(tokens: &[u32]) -> Source {
    let (agent, mut link) = Agent::with_engine(Role::Prefill, 8);
    link.say(Said::Prefill(api::Prefill {
        request: 1,
        tokens: tokens.to_vec(),
        ..api::Prefill::default()
    }));
    let Heard::PrefillStarted(started) = link.hear() else {
        panic!("it did not start")
    };
    let first_token = loop {
        if let Heard::PrefillDone(done) = link.hear() {
            break done.first_token;
        }
    };
    Source {
        file: agent.pool(&link),
        _agent: agent,
        _link: link,
        blocks: started.blocks,
        first_token,
    }
}

/// A request at a decode engine that waits for its KV.
struct Target {
    agent: Agent,
    link: Link,
    file: File,
    blocks: Vec<u32>,
    tokens: usize,
}

impl Target {
    fn waiting(tokens: &[u32], max_tokens: u32) -> Self {
        let (agent, mut link) = Agent::with_engine(Role::Decode, 16);
        link.say(Said::Submit(api::Submit {
            transfer: true,
            ..submit(7, tokens.to_vec(), max_tokens)
        }));
        let Heard::Expect(expect) = link.hear() else {
            panic!("it does not expect anything")
        };
        assert_eq!((&expect.tokens[..], expect.from_token), (tokens, 0));
        Self {
            file: agent.pool(&link),
            agent,
            link,
            blocks: expect.blocks,
            tokens: tokens.len(),
        }
    }

    fn write(&self, source: &Source, mask: u16) {
        let layout = self.link.attach.layout.as_ref().unwrap();
        let from = Place {
            file: &source.file,
            blocks: &source.blocks,
        };
        let to = Place {
            file: &self.file,
            blocks: &self.blocks,
        };
        copy(layout, &from, &to, self.tokens, mask);
    }

    fn first_token(&self, token: u32) {
        self.link.say(Said::FirstToken(api::FirstToken {
            request: 7,
            token,
            logprobs: None,
        }));
    }

    fn anchor_ready(&self, depth_limit: u32) {
        self.link.say(Said::AnchorReady(api::AnchorReady {
            request: 7,
            depth_limit,
            ..api::AnchorReady::default()
        }));
    }

    fn full_ready(&self) {
        let (request, exact) = (7, true);
        self.link
            .say(Said::FullReady(api::FullReady { request, exact }));
    }

    /// Waits for the grant, and takes what comes before it.
    fn grant(&mut self, seen: &mut Seen) {
        self.link
            .say(Said::WantGrant(api::WantGrant { request: 7 }));
        loop {
            match self.link.hear() {
                Heard::WriteGrant(grant) => {
                    assert_eq!(grant.request, 7);
                    return;
                }
                other => seen.see(other, 7),
            }
        }
    }
}

#[test]
fn kv_that_is_copied_from_pool_to_pool_gives_the_same_output_with_drafts_and_without() {
    let prompt = prompt(150);
    let source = computed(&prompt);
    let expected = expected(&prompt, 20);

    let mut target = Target::waiting(&prompt, 20);
    let mut seen = Seen::default();
    target.first_token(source.first_token);
    target.write(&source, ANCHOR);
    target.anchor_ready(8);
    while seen.drafts < 4 {
        seen.see(target.link.hear(), 7);
    }
    target.grant(&mut seen);
    target.write(&source, u16::MAX);
    target.full_ready();
    let seen = seen.until_the_end(&mut target.link, 7);
    assert_eq!(seen.tokens, expected);
    assert!(seen.verified.unwrap().drafted >= 4);

    let mut plain = Target::waiting(&prompt, 20);
    plain.write(&source, u16::MAX);
    plain.first_token(source.first_token);
    plain.full_ready();
    let seen = Seen::default().until_the_end(&mut plain.link, 7);
    assert_eq!((seen.tokens, seen.drafts), (expected, 0));
}

#[test]
fn a_request_is_not_stepped_while_the_agent_has_the_grant() {
    let prompt = prompt(70);
    let source = computed(&prompt);
    let mut target = Target::waiting(&prompt, 40);
    let mut seen = Seen::default();
    target.first_token(source.first_token);
    target.write(&source, ANCHOR);
    target.anchor_ready(30);
    target.grant(&mut seen);
    let before = seen.drafts;
    // Another request runs from its beginning to its end meanwhile, and nothing is heard of the first.
    let other = super::plain::prompt(40);
    target.link.say(Said::Submit(submit(8, other.clone(), 6)));
    let others = Seen::default().until_the_end(&mut target.link, 8);
    assert_eq!(others.tokens, super::plain::expected(&other, 6));
    target
        .link
        .say(Said::GrantReturned(api::GrantReturned { request: 7 }));
    while seen.drafts < before + 2 {
        seen.see(target.link.hear(), 7);
    }
    target.grant(&mut seen);
    target.write(&source, u16::MAX);
    target.full_ready();
    let seen = seen.until_the_end(&mut target.link, 7);
    assert_eq!(seen.tokens, expected(&prompt, 40));
}

#[test]
fn kv_that_does_not_come_is_computed() {
    let prompt = prompt(70);
    let mut target = Target::waiting(&prompt, 6);
    target.link.say(Said::KvFailed(api::KvFailed {
        request: 7,
        reason: "the link is down".to_owned(),
    }));
    let seen = Seen::default().until_the_end(&mut target.link, 7);
    assert_eq!(seen.recomputed.as_deref(), Some("the link is down"));
    assert_eq!(seen.tokens, expected(&prompt, 6));
}

#[test]
fn a_first_token_that_the_model_does_not_have_spoils_the_kv_and_not_the_answer() {
    let prompt = prompt(70);
    let mut target = Target::waiting(&prompt, 6);
    target.first_token(1 << 20);
    target.anchor_ready(8);
    let seen = Seen::default().until_the_end(&mut target.link, 7);
    assert!(seen.recomputed.unwrap().contains("1048576"));
    assert_eq!(seen.tokens, expected(&prompt, 6));
}

#[test]
fn blocks_that_the_agent_writes_outlive_their_request_until_it_gives_them_back() {
    let prompt = prompt(70);
    let mut target = Target::waiting(&prompt, 1);
    target.first_token(11);
    let seen = Seen::default().until_the_end(&mut target.link, 7);
    assert_eq!(seen.tokens, [11]);
    target.link.wait_for_free_blocks(14);
    target.link.say(Said::Abort(api::Abort { request: 7 }));
    target.link.wait_for_free_blocks(16);
    target.agent.end().unwrap();
}
