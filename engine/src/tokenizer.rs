//! Text to tokens and back, by the vocabulary that the model file itself carries.
//!
//! The `tokenizers` crate encodes; the model file names one of a few ways to cut a text before the merges, and a way that
//! is not known here is refused by name, since a wrong one gives plausible tokens and a worse model. Decoding is a table
//! of bytes: a token is a piece of UTF-8 that may begin or end inside a character, which is what streams and stop strings
//! ([`TextStream`]) need to know and a decoder of whole texts hides.

mod build;
mod cuts;
mod fewest;
mod stream;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{Gguf, TokenId};
use cuts::Cuts;
use fewest::Fewest;
use vocabulary::Vocabulary;

pub use stream::TextStream;
#[cfg(test)]
pub(crate) use tests::byte_tokenizer;

/// The tokenizer of a model.
#[derive(Debug)]
pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    /// What each token adds to a text; empty for control tokens.
    pieces: Vec<Box<[u8]>>,
    ends: Vec<TokenId>,
    bos: Option<TokenId>,
    add_bos: bool,
    texts: SpecialTexts,
    /// How tokens that add nothing to a text are written.
    names: HashMap<TokenId, String>,
    cuts: Cuts,
    fewest: Fewest,
}

/// The special tokens that chat templates speak of, as they are written; empty where a model has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTexts {
    /// The token that begins a text.
    pub bos: String,
    /// The token that ends one.
    pub eos: String,
}

/// Why a model file gives no tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A kind of vocabulary or of cutting that is not known here.
    #[error(
        "{key} is {found:?}, which this engine doesn't know; it knows {known}: use another model"
    )]
    Unknown {
        /// The metadata key.
        key: &'static str,
        /// What the file says; empty where it says nothing.
        found: String,
        /// What would do.
        known: &'static str,
    },
    /// The file lacks a list or a number, or has one that contradicts the others.
    #[error("the model file's {key} {problem}: convert the model again")]
    Metadata {
        /// The metadata key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The crate that encodes does not accept the vocabulary.
    #[error("the model file's vocabulary is inconsistent: convert the model again")]
    Build(#[source] tokenizers::Error),
}

/// A text that could not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("the text can't be encoded with this model's vocabulary")]
pub struct EncodeError(#[source] tokenizers::Error);

/// Why a text did not become a prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// It can't be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It has more tokens than it may.
    #[error("the prompt has at least {at_least} tokens, and may have {most}: shorten it")]
    TooLong {
        /// No more of it was looked at than this takes.
        at_least: usize,
        /// How many it may have.
        most: usize,
    },
    /// Nobody wants it any more.
    #[error("the prompt was given up")]
    Unwanted,
}

/// How many bytes are encoded at once: some milliseconds.
const PART: usize = 16 << 10;

impl Tokenizer {
    /// The tokenizer of a model file.
    ///
    /// # Errors
    /// Where the file has none, or one of a kind that is not known here; the error names it.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::from_vocabulary(&Vocabulary::from_gguf(gguf)?)
    }

    fn from_vocabulary(vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let text = |id: Option<TokenId>| {
            let token = id.and_then(|id| vocabulary.tokens.get(id as usize));
            token.cloned().unwrap_or_default()
        };
        let pieces = vocabulary.pieces();
        Ok(Self {
            encoder: build::encoder(vocabulary)?,
            names: vocabulary.names(),
            cuts: Cuts::new(vocabulary),
            fewest: Fewest::new(vocabulary, &pieces, build::is_composed(vocabulary)),
            pieces,
            ends: vocabulary.ends(),
            bos: vocabulary.bos,
            add_bos: vocabulary.add_bos,
            texts: SpecialTexts {
                bos: text(vocabulary.bos),
                eos: text(vocabulary.eos),
            },
        })
    }

    /// The tokens of a text. Special tokens that are written out, as chat templates do, are recognised, also in what a
    /// user wrote. Bytes for which the vocabulary has no token are left out, as in the model's training. Nothing is put in
    /// front: see [`prompt`](Self::prompt).
    ///
    /// # Errors
    /// Where the crate that encodes gives up.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, EncodeError> {
        let encoding = self.encoder.encode_fast(text, false).map_err(EncodeError)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokens of a text that begins a sequence: with the token that begins a text in front, where the model asks for
    /// one and the text does not begin with it.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn prompt(&self, text: &str) -> Result<Vec<TokenId>, EncodeError> {
        Ok(self.begun(self.encode(text)?))
    }

    /// The same tokens where there are at most `most`, part by part: time and memory are of the order of `most` tokens,
    /// however long the text is, and `is_wanted` is asked before each part.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); [`PromptError::TooLong`], and [`PromptError::Unwanted`] where `is_wanted` says no.
    pub fn prompt_within(
        &self,
        text: &str,
        most: usize,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<TokenId>, PromptError> {
        let too_long = |at_least: usize| PromptError::TooLong { at_least, most };
        let fewest = self.fewest.of(text);
        if fewest > most {
            return Err(too_long(fewest));
        }
        let text = if text.len() > PART {
            self.fewest.squeezed(text)
        } else {
            Cow::Borrowed(text)
        };
        let (mut tokens, mut rest) = (Vec::new(), &*text);
        while !rest.is_empty() {
            if !is_wanted() {
                return Err(PromptError::Unwanted);
            }
            let (part, after) = self.cuts.split(rest, PART);
            tokens.extend(self.encode(part)?);
            if tokens.len() > most {
                return Err(too_long(tokens.len() + self.fewest.of(after)));
            }
            rest = after;
        }
        let tokens = self.begun(tokens);
        if tokens.len() > most {
            return Err(too_long(tokens.len()));
        }
        Ok(tokens)
    }

    /// The longest text of `tokens` tokens, in bytes.
    pub fn longest_text(&self, tokens: usize) -> usize {
        let widest = self.fewest.widest().unwrap_or(usize::MAX);
        widest.saturating_mul(tokens)
    }

    fn begun(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        if let (true, Some(bos)) = (self.add_bos, self.bos)
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// The text of tokens, without special tokens; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[TokenId]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|&t| self.piece(t))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token adds to a text: none for a special token, or one that does not exist.
    pub fn piece(&self, token: TokenId) -> &[u8] {
        self.pieces.get(token as usize).map_or(&[], |piece| piece)
    }

    /// How a token that adds nothing to a text is written; empty for every other.
    pub fn name(&self, token: TokenId) -> &str {
        self.names.get(&token).map_or("", String::as_str)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no tokens at all.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The tokens with which the model ends its turn, ascending.
    pub fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    /// How the special tokens are written.
    pub fn special_texts(&self) -> &SpecialTexts {
        &self.texts
    }
}
