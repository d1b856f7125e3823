//! What a model file says about its tokenizer, and what its tokens mean as bytes.

use std::collections::HashMap;

use super::TokenizerError;
use crate::gguf::{Array, Value};
use crate::{Gguf, TokenId};

/// Tokens that end a turn, by how they are written: files name one of them (`eos`), models use several.
const TURN_ENDS: [&str; 7] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// The two families of vocabularies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Every byte has a printable character of its own, and tokens are strings of those (GPT-2).
    Bytes,
    /// Tokens are texts with `▁` for a space, and `<0xNN>` for a byte that no other token has (`SentencePiece`).
    Pieces,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Normal,
    /// Text that is never cut.
    UserDefined,
    /// A mark, not text.
    Control,
    /// One byte, in a [`Family::Pieces`] vocabulary.
    Byte,
}

/// The tokenizer part of a model file.
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    pub(super) family: Family,
    /// How a text is cut before the merges; of meaning for [`Family::Bytes`].
    pub(super) cut: String,
    pub(super) tokens: Vec<String>,
    pub(super) kinds: Vec<Kind>,
    /// Pairs to merge, best first; of meaning for [`Family::Bytes`].
    pub(super) merges: Vec<(String, String)>,
    /// How good a token is; of meaning for [`Family::Pieces`].
    pub(super) scores: Vec<f64>,
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Option<TokenId>,
    pub(super) unknown: Option<TokenId>,
    pub(super) add_bos: bool,
    pub(super) add_space: bool,
}

impl Vocabulary {
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let family = family(gguf)?;
        let tokens = list(gguf, "tokenizer.ggml.tokens")?.to_vec();
        let kinds = kinds(gguf, tokens.len())?;
        let (merges, scores) = match family {
            Family::Bytes => (merges(gguf)?, Vec::new()),
            Family::Pieces => (Vec::new(), scores(gguf, tokens.len())?),
        };
        let id = |key| -> Option<TokenId> {
            let id = TokenId::try_from(gguf.unsigned(key)?).ok()?;
            ((id as usize) < tokens.len()).then_some(id)
        };
        Ok(Self {
            family,
            cut: gguf
                .string("tokenizer.ggml.pre")
                .unwrap_or_default()
                .to_owned(),
            kinds,
            merges,
            scores,
            bos: id("tokenizer.ggml.bos_token_id"),
            eos: id("tokenizer.ggml.eos_token_id"),
            unknown: id("tokenizer.ggml.unknown_token_id"),
            // What a converter leaves out is the rule of the family.
            add_bos: gguf
                .bool("tokenizer.ggml.add_bos_token")
                .unwrap_or(family == Family::Pieces),
            add_space: gguf
                .bool("tokenizer.ggml.add_space_prefix")
                .unwrap_or(family == Family::Pieces),
            tokens,
        })
    }

    /// How control tokens are written.
    pub(super) fn names(&self) -> HashMap<TokenId, String> {
        let all = (0..).zip(self.tokens.iter().zip(&self.kinds));
        all.filter(|(_, (_, kind))| **kind == Kind::Control)
            .map(|(id, (token, _))| (id, token.clone()))
            .collect()
    }

    /// What every token adds to a text.
    pub(super) fn pieces(&self) -> Vec<Box<[u8]>> {
        let bytes = byte_of_char();
        let piece = |(token, kind): (&String, &Kind)| match (kind, self.family) {
            (Kind::Control, _) => Box::default(),
            (Kind::UserDefined, Family::Bytes) => token.as_bytes().into(),
            (Kind::Byte, _) => byte_token(token).into_iter().collect(),
            (_, Family::Bytes) => token
                .chars()
                .filter_map(|c| bytes.get(&c).copied())
                .collect(),
            (_, Family::Pieces) => token.replace('\u{2581}', " ").into_bytes().into(),
        };
        self.tokens.iter().zip(&self.kinds).map(piece).collect()
    }

    /// The tokens that end a turn.
    pub(super) fn ends(&self) -> Vec<TokenId> {
        (0..)
            .zip(self.tokens.iter().zip(&self.kinds))
            .filter(|(id, (token, kind))| {
                Some(*id) == self.eos
                    || (**kind == Kind::Control && TURN_ENDS.contains(&token.as_str()))
            })
            .map(|(id, _)| id)
            .collect()
    }
}

fn family(gguf: &Gguf) -> Result<Family, TokenizerError> {
    let key = "tokenizer.ggml.model";
    match gguf.string(key) {
        Some("gpt2") => Ok(Family::Bytes),
        Some("llama") => Ok(Family::Pieces),
        found => Err(TokenizerError::Unknown {
            key,
            found: found.unwrap_or_default().to_owned(),
            known: "gpt2 and llama",
        }),
    }
}

fn list<'a>(gguf: &'a Gguf, key: &'static str) -> Result<&'a [String], TokenizerError> {
    gguf.strings(key).ok_or_else(|| wrong(key, "is missing"))
}

fn kinds(gguf: &Gguf, tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let numbers = gguf.integers(key).ok_or_else(|| wrong(key, "is missing"))?;
    if numbers.len() != tokens {
        return Err(wrong(
            key,
            &format!("has {} entries for {tokens} tokens", numbers.len()),
        ));
    }
    let kind = |number: &i64| match number {
        // Unknown (2), control (3) and unused (5) tokens stand for no text.
        2 | 3 | 5 => Kind::Control,
        4 => Kind::UserDefined,
        6 => Kind::Byte,
        _ => Kind::Normal,
    };
    Ok(numbers.iter().map(kind).collect())
}

fn merges(gguf: &Gguf) -> Result<Vec<(String, String)>, TokenizerError> {
    let key = "tokenizer.ggml.merges";
    let pair = |merge: &String| {
        let (left, right) = merge
            .split_once(' ')
            .ok_or_else(|| wrong(key, &format!("has {merge:?}, which is not a pair")))?;
        Ok((left.to_owned(), right.to_owned()))
    };
    list(gguf, key)?.iter().map(pair).collect()
}

fn scores(gguf: &Gguf, tokens: usize) -> Result<Vec<f64>, TokenizerError> {
    let key = "tokenizer.ggml.scores";
    match gguf.value(key) {
        Some(Value::Array(Array::Float(scores))) if scores.len() == tokens => Ok(scores.clone()),
        _ => Err(wrong(
            key,
            "is missing or of another length than the vocabulary",
        )),
    }
}

fn wrong(key: &'static str, problem: &str) -> TokenizerError {
    TokenizerError::Metadata {
        key,
        problem: problem.to_owned(),
    }
}

/// The byte that `<0xNN>` names.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok()
}

/// The byte that each character of a [`Family::Bytes`] vocabulary stands for: printable characters of Latin-1 stand for
/// themselves, the others follow from U+0100 on, in order.
fn byte_of_char() -> HashMap<char, u8> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let (own, moved): (Vec<u8>, Vec<u8>) = (0..=255).partition(printable);
    let own = own.into_iter().map(|byte| (char::from(byte), byte));
    own.chain(('\u{100}'..).zip(moved)).collect()
}
