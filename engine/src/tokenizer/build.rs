//! An encoder of the `tokenizers` crate from a model file's vocabulary.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, BpeBuilder, Merges, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

use super::TokenizerError;
use super::vocabulary::{Family, Kind, Vocabulary};

/// The cut of Llama 3: digits in threes, contractions in either case, a word with the one character before it.
const CUT_LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The cut of Qwen 2: that of Llama 3 with single digits.
const CUT_QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// What stands for a space in a [`Family::Pieces`] vocabulary.
pub(super) const SPACE_MARK: &str = "\u{2581}";

/// Whether texts are composed (Unicode NFC) before they are cut.
pub(super) fn is_composed(vocabulary: &Vocabulary) -> bool {
    vocabulary.family == Family::Bytes && Cut::of(&vocabulary.cut).is_ok_and(|cut| cut.composed)
}

pub(super) fn encoder(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let mut tokenizer = match vocabulary.family {
        Family::Bytes => bytes(vocabulary)?,
        Family::Pieces => pieces(vocabulary)?,
    };
    tokenizer.add_special_tokens(&added(vocabulary, Kind::Control));
    tokenizer.add_tokens(&added(vocabulary, Kind::UserDefined));
    Ok(tokenizer)
}

/// The tokens of a kind, to be found in a text as they are written.
fn added(vocabulary: &Vocabulary, wanted: Kind) -> Vec<AddedToken> {
    let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    tokens
        .filter(|(_, kind)| **kind == wanted)
        .map(|(token, _)| {
            AddedToken::from(token.as_str(), wanted == Kind::Control).normalized(false)
        })
        .collect()
}

fn ids(vocabulary: &Vocabulary) -> Vocab {
    (0..)
        .zip(&vocabulary.tokens)
        .map(|(id, token)| (token.clone(), id))
        .collect()
}

fn bytes(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let cut = Cut::of(&vocabulary.cut)?;
    let model = BPE::builder()
        .vocab_and_merges(ids(vocabulary), vocabulary.merges.clone())
        .ignore_merges(cut.whole_words);
    let mut tokenizer = finish(model)?;
    tokenizer.with_pre_tokenizer(Some(Sequence::new(cut.steps)));
    if cut.composed {
        tokenizer.with_normalizer(Some(NFC));
    }
    Ok(tokenizer)
}

/// `SentencePiece`'s pair merging: the pair whose union scores highest goes first, so the pairs are listed by the scores
/// of their unions.
fn pieces(vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let mut model = BPE::builder()
        .vocab_and_merges(ids(vocabulary), scored_merges(vocabulary))
        .fuse_unk(true)
        .byte_fallback(true);
    if let Some(unknown) = vocabulary.unknown {
        model = model.unk_token(vocabulary.tokens[unknown as usize].clone());
    }
    let mut tokenizer = finish(model)?;
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if vocabulary.add_space {
        steps.push(Prepend::new(SPACE_MARK.to_owned()).into());
    }
    steps.push(
        Replace::new(" ", SPACE_MARK)
            .map_err(TokenizerError::Build)?
            .into(),
    );
    tokenizer.with_normalizer(Some(Normalizers::new(steps)));
    Ok(tokenizer)
}

fn scored_merges(vocabulary: &Vocabulary) -> Merges {
    let known: HashMap<&str, usize> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| vocabulary.kinds[*id] == Kind::Normal)
        .map(|(id, token)| (token.as_str(), id))
        .collect();
    let mut unions: Vec<_> = known.iter().map(|(token, id)| (*token, *id)).collect();
    unions.sort_by(|(_, a), (_, b)| {
        let score = |id: usize| vocabulary.scores[id];
        score(*b).total_cmp(&score(*a)).then(a.cmp(b))
    });
    let halves = |token: &str| -> Vec<(String, String)> {
        let cuts = token
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.split_at(at));
        cuts.filter(|(left, right)| known.contains_key(left) && known.contains_key(right))
            .map(|(left, right)| (left.to_owned(), right.to_owned()))
            .collect()
    };
    unions
        .into_iter()
        .flat_map(|(token, _)| halves(token))
        .collect()
}

fn finish(model: BpeBuilder) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let model = model.build().map_err(TokenizerError::Build)?;
    Ok(tokenizers::Tokenizer::new(model))
}

/// How a text is cut before the merges, which never reach across a cut.
struct Cut {
    steps: Vec<PreTokenizerWrapper>,
    /// A piece that is a token as a whole is that token, whatever the merges say.
    whole_words: bool,
    /// The text is composed (Unicode NFC) first.
    composed: bool,
}

impl Cut {
    fn of(name: &str) -> Result<Self, TokenizerError> {
        match name {
            "smollm" | "starcoder" | "refact" => Ok(Self::plain(vec![
                Digits::new(true).into(),
                ByteLevel::new(false, true, true).into(),
            ])),
            "gpt-2" => Ok(Self::plain(vec![ByteLevel::new(false, true, true).into()])),
            "llama-bpe" | "llama3" | "llama-v3" => Ok(Self {
                whole_words: true,
                ..Self::plain(by_pattern(CUT_LLAMA3)?)
            }),
            "qwen2" => Ok(Self {
                composed: true,
                ..Self::plain(by_pattern(CUT_QWEN2)?)
            }),
            _ => Err(TokenizerError::Unknown {
                key: "tokenizer.ggml.pre",
                found: name.to_owned(),
                known: "smollm, starcoder, refact, gpt-2, llama-bpe and qwen2",
            }),
        }
    }

    fn plain(steps: Vec<PreTokenizerWrapper>) -> Self {
        Self {
            steps,
            whole_words: false,
            composed: false,
        }
    }
}

fn by_pattern(pattern: &str) -> Result<Vec<PreTokenizerWrapper>, TokenizerError> {
    let pattern = SplitPattern::Regex(pattern.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
    Ok(vec![
        split.map_err(TokenizerError::Build)?.into(),
        ByteLevel::new(false, true, false).into(),
    ])
}
