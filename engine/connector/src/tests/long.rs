//! Prompts of megabytes, which are made tokens while others are answered.

use lynx_proto::engine::v1 as api;

use api::from_agent::Kind as Said;
use api::from_engine::Kind as Heard;

use super::plain::{Seen, prompt, submit};
use super::{Agent, opened};
use crate::Role;

/// Blocks for the model's context: what is beyond is refused before it takes long.
const WHOLE: u32 = 128;

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
    let (_agent, mut link) = Agent::with_engine(Role::Decode, WHOLE);
    link.say(Said::Submit(submit(1, prompt(20), 500)));
    link.say(slow(2));
    let mut meanwhile = Seen::default();
    loop {
        match link.hear() {
            // It is tokens now, and begins.
            Heard::Progress(progress) if progress.request == 2 => break,
            other => meanwhile.see(other, 1),
        }
    }
    assert!(
        meanwhile.tokens.len() > 4,
        "{} tokens",
        meanwhile.tokens.len()
    );
}

/// As many bytes as a context's tokens can be, which takes the longest.
fn slow(request: u64) -> Said {
    let tokenizer = &opened().tokenizer;
    let pieces = (0..tokenizer.len()).filter_map(|token| u32::try_from(token).ok());
    let longest = pieces.max_by_key(|token| tokenizer.piece(*token).len());
    let text = tokenizer.decode(&[longest.unwrap()]).repeat(7000);
    Said::Submit(api::Submit {
        request,
        input: Some(api::submit::Input::Text(text)),
        max_tokens: 4,
        ..api::Submit::default()
    })
}

#[test]
fn prompts_that_were_given_up_hold_up_nobody() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, WHOLE);
    // Any of them would be answered or refused, were it made tokens to its end: nothing is heard of them but this.
    for request in 1..=40 {
        link.say(slow(request));
        link.say(Said::Abort(api::Abort { request }));
    }
    for request in 1..=40 {
        let seen = Seen::default().until_the_end(&mut link, request);
        assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    }
    link.say(long(41, 9 << 10));
    let seen = Seen::default().until_the_end(&mut link, 41);
    assert!(!seen.tokens.is_empty());
}

#[test]
fn a_prompt_of_megabytes_is_refused_with_a_number() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, 16);
    link.say(long(1, 4 << 20));
    let Heard::Refused(refused) = link.hear() else {
        panic!("not refused");
    };
    assert!(refused.too_long && !refused.retryable);
    let number = refused
        .reason
        .split_whitespace()
        .find_map(|word| word.parse().ok());
    assert!(
        number.is_some_and(|tokens: u32| tokens > 100_000),
        "{}",
        refused.reason
    );
}

#[test]
fn prompts_beyond_what_may_wait_are_to_come_again() {
    let (_agent, mut link) = Agent::with_engine(Role::Decode, WHOLE);
    link.say(slow(1));
    link.say(slow(2));
    for request in 3..=8 {
        link.say(long(request, 15 << 20));
    }
    let refused = loop {
        match link.hear() {
            Heard::Refused(refused) if refused.request > 2 => break refused,
            _ => {}
        }
    };
    assert!(refused.retryable && !refused.too_long, "{}", refused.reason);
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
    let (_agent, mut link) = Agent::with_engine(Role::Decode, WHOLE);
    link.say(slow(1));
    link.say(Said::Abort(api::Abort { request: 1 }));
    let seen = Seen::default().until_the_end(&mut link, 1);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    // The same number is free again, and the old prompt's tokens are nobody's.
    link.say(Said::Submit(submit(1, prompt(20), 3)));
    let seen = Seen::default().until_the_end(&mut link, 1);
    assert_eq!(seen.tokens.len(), 3);
    link.say(slow(2));
    link.say(Said::Forget(api::Forget {}));
    let seen = Seen::default().until_the_end(&mut link, 2);
    assert_eq!(seen.finished.unwrap().reason(), api::FinishReason::Aborted);
    assert!(matches!(link.hear(), Heard::Forgotten(_)));
}
