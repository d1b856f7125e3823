//! Prompts of megabytes, which are made tokens while others are answered.

use lynx_proto::engine::v1 as api;

use api::from_agent::Kind as Said;
use api::from_engine::Kind as Heard;

use super::Agent;
use super::plain::{Seen, prompt, submit};
use crate::Role;

fn long(request: u64, bytes: usize) -> Said {
    let text = "A lynx moves through deep snow at night. ".repeat(bytes / 41);
    Said::Submit(api::Submit {
        request,
        input: Some(api::submit::Input::Text(text)),
        max_tokens: 4,
        ..api::Submit::default()
    })
}

#[test]
fn a_prompt_of_megabytes_does_not_hold_up_the_tokens_of_others() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    link.say(Said::Submit(submit(1, prompt(20), 500)));
    link.say(long(2, 2 << 20));
    let mut meanwhile = Seen::default();
    let refused = loop {
        match link.hear() {
            Heard::Refused(refused) => break refused,
            other => meanwhile.see(other, 1),
        }
    };
    assert_eq!(refused.request, 2);
    assert!(refused.reason.contains("tokens"), "{}", refused.reason);
    assert!(
        meanwhile.tokens.len() > 4,
        "{} tokens",
        meanwhile.tokens.len()
    );
    link.say(Said::Abort(api::Abort { request: 1 }));
    meanwhile.until_the_end(&mut link, 1);
}

#[test]
fn a_long_prompt_that_fits_is_answered_as_a_short_one() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 48);
    link.say(long(1, 9 << 10));
    let seen = Seen::default().until_the_end(&mut link, 1);
    assert!(!seen.tokens.is_empty());
}

#[test]
fn a_prompt_that_is_given_up_while_it_becomes_tokens_has_one_last_word() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    link.say(long(1, 2 << 20));
    link.say(Said::Abort(api::Abort { request: 1 }));
    let seen = Seen::default().until_the_end(&mut link, 1);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    // The same number is free again, and the old prompt's tokens are nobody's.
    link.say(Said::Submit(submit(1, prompt(20), 3)));
    let seen = Seen::default().until_the_end(&mut link, 1);
    assert_eq!(seen.tokens.len(), 3);
    link.say(long(2, 2 << 20));
    link.say(Said::Forget(api::Forget {}));
    let seen = Seen::default().until_the_end(&mut link, 2);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    assert!(matches!(link.hear(), Heard::Forgotten(_)));
}
