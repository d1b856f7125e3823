//! What a client puts together from tokens that come, go and come again is what one stream of them gives.

use std::sync::Arc;

use bolero::TypeGenerator;
use lynx_engine::Tokenizer;

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

/// The text that each token adds, and what is held back after the last.
fn told(stream: &TextStream, tokens: &[TokenId]) -> (Vec<String>, String) {
    let mut stream = stream.clone();
    let texts = tokens.iter().map(|token| stream.push(*token)).collect();
    (texts, stream.finish())
}

#[test]
fn drafts_that_come_and_go_leave_no_trace_in_the_text() {
    let tokenizer: &Arc<Tokenizer> = &opened().tokenizer;
    let stops = ["ab", "bEND", "é"].map(str::to_owned).to_vec();
    for stops in [Vec::new(), stops] {
        let stream = TextStream::new(tokenizer.clone(), stops);
        bolero::check!()
            .with_type::<Vec<Op>>()
            .with_iterations(500)
            .for_each(|ops| replay(tokenizer, &stream, ops));
    }
}

fn replay(tokenizer: &Tokenizer, stream: &TextStream, ops: &[Op]) {
    let mut text = Text::new(stream.clone());
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
                shown[verified] = text.verify(token);
                verified += 1;
            }
            Op::Retract(drafts) => {
                let kept = (verified + usize::from(drafts % 4)).min(tokens.len());
                tokens.truncate(kept);
                shown.truncate(kept);
                text.retract(u32::try_from(kept).unwrap());
            }
        }
        assert_eq!(shown, told(stream, &tokens).0);
    }
    assert_eq!(text.finish(), told(stream, &tokens[..verified]).1);
}

#[test]
fn a_stop_text_is_not_told_and_neither_is_its_beginning() {
    let tokenizer = &opened().tokenizer;
    let stream = TextStream::new(tokenizer.clone(), vec!["\nUser:".to_owned()]);
    for (said, expected) in [("Yes.\nUser: hi", "Yes."), ("Yes.\nUse it", "Yes.\nUse it")] {
        let mut text = Text::new(stream.clone());
        let mut told = String::new();
        for token in tokenizer.encode(said).unwrap() {
            told += &text.verify(token);
            assert!(expected.starts_with(&told), "{told:?}");
        }
        assert_eq!(told + &text.finish(), expected);
    }
}
