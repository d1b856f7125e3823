//! The prompts of the demo and the benches: long contexts, each with a question at its end.
//!
//! Deterministic: the same build, seed and machine give the same prompts. No foreign text is kept in the repository; contexts are
//! Lynx's own documentation and sources, seeded logs, records and reports, and texts that most machines have (licences, the
//! Python library), read at run time and skipped with a note where they are missing. Random words would not do: KV caches of
//! noise quantise differently from those of text, and drafts on noise are never accepted.

use std::path::Path;

use thiserror::Error;

mod embedded;
mod fit;
mod generated;
mod needle;
mod seeded;
mod system;

use needle::Needle;
use seeded::Seeded;

/// How much text a source keeps: over 4096 tokens of anything, at 3 bytes a token and more.
const SOURCE_BYTES: usize = 40 << 10;

/// What a context is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A text to search for one sentence that was hidden in it.
    Needle,
    /// Documentation, reports, licences.
    Prose,
    /// Program text.
    Code,
    /// Logs, records, tables.
    Data,
    /// What the user gave.
    Own,
}

/// A text that prompts of any length can be cut from, and what is asked about it.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    kind: Kind,
    text: String,
    question: String,
    needle: Option<Needle>,
}

/// A context cut to its length, and a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The source's name.
    pub name: String,
    /// What the question is about.
    pub context: String,
    /// The question.
    pub question: String,
    /// What a right answer holds, where there is one such thing.
    pub answer: Option<String>,
    /// How many tokens the caller's count gave for [`text`](Self::text).
    pub tokens: usize,
}

impl Prompt {
    /// Context and question, as the model gets them.
    pub fn text(&self) -> String {
        joined(&self.context, &self.question)
    }

    /// Whether `output` holds the right answer; `None` where there is no such thing.
    pub fn is_answered_by(&self, output: &str) -> Option<bool> {
        let answer = self.answer.as_deref()?;
        Some(output.contains(answer))
    }
}

fn joined(context: &str, question: &str) -> String {
    format!("{context}\n\n{question}")
}

/// The prompts' sources, and what could not be read.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The sources, kinds alternating, so that the first few of them are a fair choice.
    pub sources: Vec<Source>,
    /// One line for each text that this machine lacks; to be shown to the user.
    pub notes: Vec<String>,
}

/// All sources. `seed` chooses the generated texts, the needles and where in a long document a prompt begins.
pub fn corpus(seed: u64) -> Corpus {
    corpus_under(Path::new("/usr"), seed)
}

/// The same, with the machine's texts under another root than `/usr`.
fn corpus_under(usr: &Path, seed: u64) -> Corpus {
    let mut notes = Vec::new();
    let mut sources = needle::sources(seed);
    sources.extend(embedded::sources(seed));
    sources.extend(generated::sources(seed));
    sources.extend(system::sources(usr, seed, &mut notes));
    Corpus {
        sources: alternating(sources),
        notes,
    }
}

/// One of each kind, then again, until all are there.
fn alternating(sources: Vec<Source>) -> Vec<Source> {
    let mut seen = [0_usize; 5];
    let mut ranked: Vec<_> = sources
        .into_iter()
        .map(|source| {
            let count = &mut seen[source.kind as usize];
            *count += 1;
            (*count, source)
        })
        .collect();
    // Stable, and kinds come in a fixed order, so each round has the kinds in that order.
    ranked.sort_by_key(|(round, source)| (*round, source.kind));
    ranked.into_iter().map(|(_, source)| source).collect()
}

/// Why no prompt of the wanted length can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the question alone takes {least} tokens, more than the {target} wanted; ask for a longer prompt or a shorter question"
)]
pub struct FitError {
    /// Tokens without any context.
    pub least: usize,
    /// Tokens wanted.
    pub target: usize,
}

impl Source {
    /// The user's own text and question.
    pub fn own(name: impl Into<String>, text: String, question: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Own,
            text,
            question: question.into(),
            needle: None,
        }
    }

    /// The same text with another question.
    #[must_use]
    pub fn asking(self, question: &str) -> Self {
        Self {
            question: question.to_owned(),
            needle: None,
            ..self
        }
    }

    /// The source's name, unique in a corpus.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its text is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A prompt of as many tokens as fit into `target_tokens`; fewer where the text is too short.
    ///
    /// `count` is the tokens of a whole prompt text, the chat template included where the caller applies one.
    ///
    /// # Errors
    ///
    /// [`FitError`] where not even the question fits.
    pub fn prompt(
        &self,
        target_tokens: usize,
        count: &dyn Fn(&str) -> usize,
    ) -> Result<Prompt, FitError> {
        let context_of = |bytes: usize| {
            let context = &self.text[..bytes];
            match &self.needle {
                Some(needle) => needle.hidden_in(context),
                None => context.to_owned(),
            }
        };
        let tokens_of = |bytes: usize| count(&joined(&context_of(bytes), &self.question));
        let bytes = fit::longest_prefix(&self.text, target_tokens, tokens_of)?;
        Ok(Prompt {
            name: self.name.clone(),
            context: context_of(bytes),
            question: self.question.clone(),
            answer: self.needle.as_ref().map(|needle| needle.answer.clone()),
            tokens: tokens_of(bytes),
        })
    }
}

/// A source over a window of a document that may be longer than needed; the seed says where it begins.
fn document(kind: Kind, name: &str, text: &str, question: &str, seed: u64) -> Source {
    let spare = text.len().saturating_sub(SOURCE_BYTES);
    let offset = Seeded::new(seed, name).below(spare + 1);
    let start = text[..text.floor_char_boundary(offset)]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let end = text.floor_char_boundary(start.saturating_add(SOURCE_BYTES));
    Source {
        name: name.to_owned(),
        kind,
        text: text[start..end].to_owned(),
        question: question.to_owned(),
        needle: None,
    }
}

#[cfg(test)]
mod tests;
