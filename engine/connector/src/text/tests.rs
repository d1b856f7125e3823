//! What a client puts together from tokens that come, go and come again is what one stream of them gives.

use std::sync::Arc;

use bolero::TypeGenerator;
use lynx_engine::{Logprob, Tokenizer};

use super::*;
use crate::tests::opened;

/// What happens to an output.
#[derive(Clone, Debug, TypeGenerator)]
enum Op {
    Draft(u8),
    /// The first draft stands; without one, a new token comes.
    Verify(u8),
    /// Drafts from this one on are void.
    Retract(u8),
}

/// Tokens whose texts together make stop texts, whole and half characters.
fn token(tokenizer: &Tokenizer, byte: u8) -> TokenId {
    const TEXTS: [&str; 8] = ["a", "b", "ab", " b", "é", "🦀", "END", "E"];
    let tokens = tokenizer
        .encode(TEXTS[usize::from(byte) % TEXTS.len()])
        .unwrap();
    tokens[usize::from(byte / 8) % tokens.len()]
}

/// Something to be told of a token.
fn known(token: TokenId) -> Logprobs {
    let chosen = Logprob {
        token,
        logprob: -1.0,
    };
    Logprobs {
        chosen,
        top: Vec::new(),
    }
}

/// The text that each token adds, and what is held back after the last.
fn told(stream: &TextStream, tokens: &[TokenId]) -> (Vec<String>, String) {
    let mut stream = stream.clone();
    let texts = tokens.iter().map(|token| stream.push(*token)).collect();
    (texts, stream.rest())
}

#[test]
fn drafts_that_come_and_go_leave_no_trace_in_the_text() {
    let tokenizer: &Arc<Tokenizer> = &opened().tokenizer;
    let stops = ["ab", "bEND", "é"].map(str::to_owned).to_vec();
    for stops in [Vec::new(), stops] {
        bolero::check!()
            .with_type::<Vec<Op>>()
            .with_iterations(500)
            .for_each(|ops| replay(tokenizer, &stops, ops));
    }
}

fn replay(tokenizer: &Arc<Tokenizer>, stops: &[String], ops: &[Op]) {
    let stream = TextStream::new(tokenizer.clone(), stops.to_vec());
    let mut text = Text::new(tokenizer.clone(), stops.to_vec());
    let mut with_logprobs = 0;
    let (mut tokens, mut shown) = (Vec::new(), Vec::new());
    let mut verified = 0;
    for op in ops {
        match op {
            Op::Draft(byte) => {
                let token = token(tokenizer, *byte);
                tokens.push(token);
                shown.push(text.draft(token));
            }
            Op::Verify(byte) => {
                let token = tokens.get(verified).copied();
                let token = token.unwrap_or_else(|| self::token(tokenizer, *byte));
                tokens.truncate(tokens.len().max(verified));
                if tokens.len() == verified {
                    tokens.push(token);
                    shown.push(String::new());
                }
                let told = text.verify(token, Some(known(token)));
                shown[verified] = told.text;
                for told in told.logprobs {
                    assert_eq!(told.chosen.token, tokens[with_logprobs], "in order");
                    with_logprobs += 1;
                }
                verified += 1;
            }
            Op::Retract(drafts) => {
                let kept = (verified + usize::from(drafts % 4)).min(tokens.len());
                tokens.truncate(kept);
                shown.truncate(kept);
                text.retract(u32::try_from(kept).unwrap());
            }
        }
        assert_eq!(shown, told(&stream, &tokens).0);
    }
    let end = text.finish(FinishReason::Length);
    assert_eq!(end.text, told(&stream, &tokens[..verified]).1);
    assert_eq!(with_logprobs + end.logprobs.len(), verified);
}

#[test]
fn a_stop_text_is_not_told_and_neither_is_its_beginning() {
    let tokenizer = &opened().tokenizer;
    let stops = || vec!["\nUser:".to_owned()];
    for (said, expected) in [("Yes.\nUser: hi", "Yes."), ("Yes.\nUse it", "Yes.\nUse it")] {
        let mut text = Text::new(tokenizer.clone(), stops());
        let mut told = String::new();
        for token in tokenizer.encode(said).unwrap() {
            told += &text.verify(token, None).text;
            assert!(expected.starts_with(&told), "{told:?}");
        }
        assert_eq!(told + &text.finish(FinishReason::StopString).text, expected);
    }
}

/// Tokens are told with the text that they are of: none before it, none that only ends the output, and none twice.
#[test]
fn log_probabilities_come_with_the_text_that_they_are_of() {
    let tokenizer = &opened().tokenizer;
    let said = "A lynx 🦀 is no café.\nUser: hi";
    for (stop, expected) in [
        ("\nUser:", "A lynx 🦀 is no café."),
        ("x 🦀", "A lyn"),
        ("fé.", "A lynx 🦀 is no ca"),
        ("never", said),
    ] {
        let mut text = Text::new(tokenizer.clone(), vec![stop.to_owned()]);
        let (mut told, mut tokens) = (Told::default(), tokenizer.encode(said).unwrap());
        let mut reason = FinishReason::Length;
        let mut take = |more: Told| {
            told.text += &more.text;
            told.logprobs.extend(more.logprobs);
            let pieces = |known: &[Logprobs]| -> Vec<u8> {
                let pieces = known
                    .iter()
                    .map(|known| tokenizer.piece(known.chosen.token));
                pieces.flatten().copied().collect()
            };
            assert!(pieces(&told.logprobs).starts_with(told.text.as_bytes()));
            if let Some((_, before)) = told.logprobs.split_last() {
                assert!(
                    pieces(before).len() < told.text.len() + 4,
                    "a half character at most"
                );
            }
            told.text.clone()
        };
        if stop != "never" {
            tokens.extend(tokenizer.ends());
            reason = FinishReason::StopString;
        }
        for token in tokens {
            let more = text.verify(token, Some(known(token)));
            assert!(expected.starts_with(&take(more)));
        }
        assert_eq!(take(text.finish(reason)), expected);
        let names_ends = told.logprobs.iter();
        let ends = names_ends.filter(|known| tokenizer.ends().contains(&known.chosen.token));
        assert_eq!(ends.count(), 0, "what only ends the output is not told");
    }
}
