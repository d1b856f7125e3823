//! Agents that come, go and say no.

use lynx_proto::engine::v1 as api;
use tonic::Status;

use api::from_agent::Kind as Said;
use api::from_engine::Kind as Heard;

use super::Agent;
use super::plain::{Seen, expected, prompt, submit};
use crate::Role;
use crate::opened::Opened;

#[test]
fn an_engine_whose_agent_vanishes_in_the_middle_of_a_request_serves_the_next_one() {
    let (agent, mut link) = Agent::with_engine(Role::Decode, 16);
    let waiting = api::Submit {
        transfer: true,
        ..submit(1, prompt(100), 50)
    };
    link.say(Said::Submit(waiting));
    assert!(matches!(link.hear(), Heard::Expect(_)));
    Seen::default().see(link.hear(), 1);
    link.say(Said::Submit(submit(2, prompt(60), 400)));
    let mut seen = Seen::default();
    while seen.tokens.is_empty() {
        seen.see(link.hear(), 2);
    }
    drop(link);
    // The same number is another request of another stream.
    let mut link = agent.attached();
    link.wait_for_free_blocks(16);
    let prompt = prompt(70);
    link.say(Said::Submit(submit(2, prompt.clone(), 5)));
    let seen = Seen::default().until_the_end(&mut link, 2);
    assert_eq!(seen.tokens, expected(&prompt, 5));
}

#[test]
fn an_engine_that_the_agent_refuses_asks_again() {
    let why = "the model is SmolLM2, and this deployment serves another";
    let agent = Agent::start(Role::Decode, 4, Some(Status::failed_precondition(why)));
    drop(agent.attached());
    agent.end().unwrap();
}

#[test]
fn an_engine_that_forgets_is_as_new() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    link.say(Said::Submit(submit(1, prompt(70), 2)));
    Seen::default().until_the_end(&mut link, 1);
    link.say(Said::Submit(submit(2, prompt(70), 400)));
    link.say(Said::Forget(api::Forget {}));
    let seen = Seen::default().until_the_end(&mut link, 2);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    assert!(matches!(link.hear(), Heard::Forgotten(_)));
    link.wait_for_free_blocks(16);
    let waiting = api::Submit {
        transfer: true,
        ..submit(3, prompt(70), 5)
    };
    link.say(Said::Submit(waiting));
    let Heard::Expect(expect) = link.hear() else {
        panic!("it does not expect anything")
    };
    assert_eq!(expect.from_token, 0);
}

#[test]
fn an_aborted_request_ends_at_once() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    link.say(Said::Submit(submit(1, prompt(70), 400)));
    let mut seen = Seen::default();
    while seen.tokens.is_empty() {
        seen.see(link.hear(), 1);
    }
    link.say(Said::Abort(api::Abort { request: 1 }));
    let seen = seen.until_the_end(&mut link, 1);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    link.wait_for_free_blocks(16);
}

#[test]
fn a_model_that_can_not_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no.gguf");
    let message = Opened::open(&path).unwrap_err().to_string();
    assert!(message.contains("no.gguf"), "{message}");
    std::fs::write(&path, "GGUF and nothing else").unwrap();
    let message = Opened::open(&path).unwrap_err().to_string();
    assert!(message.contains("no.gguf"), "{message}");
}
