//! Log probabilities in OpenAI's two shapes.

use lynx_proto::engine::v1::{Logprob, TokenLogprobs};
use serde_json::{Map, Value, json};

use super::answer::Form;

/// One choice's log probabilities, told in one piece or in several.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Characters that the tokens told so far have begun.
    characters: usize,
}

impl Told {
    /// The value of a choice's `logprobs`. `tokens` follow those that were told before.
    pub(super) fn json(&mut self, form: Form, tokens: &[TokenLogprobs]) -> Value {
        match form {
            Form::Chat => {
                let content: Vec<Value> = tokens.iter().map(chat).collect();
                json!({"content": content, "refusal": null})
            }
            Form::Completion => self.completion(tokens),
        }
    }

    fn completion(&mut self, tokens: &[TokenLogprobs]) -> Value {
        let (mut names, mut numbers) = (Vec::new(), Vec::new());
        let (mut tops, mut offsets) = (Vec::new(), Vec::new());
        for token in tokens {
            let Some(chosen) = &token.chosen else {
                continue;
            };
            names.push(unambiguous(chosen));
            numbers.push(chosen.logprob);
            let top: Map<String, Value> = token
                .top
                .iter()
                .chain([chosen])
                .map(|known| (unambiguous(known), json!(known.logprob)))
                .collect();
            tops.push((!token.top.is_empty()).then_some(top));
            offsets.push(self.offset(&chosen.bytes));
        }
        // Without likeliest tokens there is nothing to list.
        let tops = tops.iter().any(Option::is_some).then_some(tops);
        json!({
            "tokens": names,
            "token_logprobs": numbers,
            "top_logprobs": tops,
            "text_offset": offsets,
        })
    }

    /// The character of the choice's text that a token begins in, where its bytes come next.
    fn offset(&mut self, bytes: &[u8]) -> usize {
        const fn goes_on(byte: u8) -> bool {
            byte & 0xc0 == 0x80
        }
        let inside = bytes.first().is_some_and(|byte| goes_on(*byte));
        let start = self.characters.saturating_sub(usize::from(inside));
        self.characters += bytes.iter().filter(|byte| !goes_on(**byte)).count();
        start
    }
}

fn chat(token: &TokenLogprobs) -> Value {
    let one = |known: &Logprob| {
        let bytes = (!known.bytes.is_empty() || known.name.is_empty()).then_some(&known.bytes);
        json!({"token": text(known), "logprob": known.logprob, "bytes": bytes})
    };
    let mut value = token.chosen.as_ref().map_or(Value::Null, one);
    if let Value::Object(fields) = &mut value {
        let top = token.top.iter().map(one).collect();
        fields.insert("top_logprobs".to_owned(), Value::Array(top));
    }
    value
}

/// A token as text: special ones as they are written, and parts of characters as U+FFFD.
fn text(known: &Logprob) -> String {
    if known.bytes.is_empty() {
        known.name.clone()
    } else {
        String::from_utf8_lossy(&known.bytes).into_owned()
    }
}

/// A token where there are no bytes beside it: parts of characters are told as bytes, so that no two are the same.
fn unambiguous(known: &Logprob) -> String {
    if known.bytes.is_empty() || std::str::from_utf8(&known.bytes).is_ok() {
        return text(known);
    }
    let escaped = known.bytes.iter().map(|byte| format!("\\x{byte:02x}"));
    format!("bytes:{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(token: u32, logprob: f32, bytes: &[u8]) -> Logprob {
        Logprob {
            token,
            logprob,
            bytes: bytes.to_vec(),
            name: String::new(),
        }
    }

    fn tokens() -> Vec<TokenLogprobs> {
        let end = Logprob {
            name: "<|end|>".to_owned(),
            ..known(0, -4.0, b"")
        };
        let one = |chosen: Logprob| TokenLogprobs {
            top: vec![chosen.clone(), end.clone()],
            chosen: Some(chosen),
        };
        vec![
            one(known(1, -0.5, "é".as_bytes())),
            one(known(2, -1.0, &[0xf0, 0x9f])),
            one(known(3, -2.0, &[0xa6, 0x80, b'!'])),
            one(known(4, -2.5, b" a")),
        ]
    }

    #[test]
    fn chats_list_texts_and_bytes() {
        let value = Told::default().json(Form::Chat, &tokens()[1..2]);
        let expected = json!({"content": [{
            "token": "\u{fffd}", "logprob": -1.0, "bytes": [0xf0, 0x9f],
            "top_logprobs": [
                {"token": "\u{fffd}", "logprob": -1.0, "bytes": [0xf0, 0x9f]},
                {"token": "<|end|>", "logprob": -4.0, "bytes": null},
            ],
        }], "refusal": null});
        assert_eq!(value, expected);
    }

    #[test]
    fn completions_list_columns_and_offsets_go_on_from_piece_to_piece() {
        let mut told = Told::default();
        let first = told.json(Form::Completion, &tokens()[..2]);
        assert_eq!(first["tokens"], json!(["é", "bytes:\\xf0\\x9f"]));
        assert_eq!(first["token_logprobs"], json!([-0.5, -1.0]));
        assert_eq!(
            first["top_logprobs"][0],
            json!({"é": -0.5, "<|end|>": -4.0})
        );
        assert_eq!(first["text_offset"], json!([0, 1]));
        let second = told.json(Form::Completion, &tokens()[2..]);
        assert_eq!(second["text_offset"], json!([1, 3]), "é🦀! a");
    }

    #[test]
    fn a_completion_without_likeliest_tokens_lists_none() {
        let mut bare = tokens();
        bare.iter_mut().for_each(|token| token.top.clear());
        let value = Told::default().json(Form::Completion, &bare);
        assert_eq!(value["top_logprobs"], Value::Null);
        assert_eq!(value["token_logprobs"].as_array().unwrap().len(), 4);
    }
}
