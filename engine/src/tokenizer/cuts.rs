//! Where a text may be cut so that its parts have the tokens of the whole.
//!
//! A prompt is tokenised part by part, to stop when it is too long or nobody wants it any more. Only places are used at
//! which every one of the known ways to cut a text cuts it, whatever stands around: between two characters that are told
//! from each other without tables of Unicode that might differ from the regular expressions'. That misses many places and
//! none is needed: a text without any is one part.

use super::build::SPACE_MARK;
use super::vocabulary::{Family, Kind, Vocabulary};

/// The places of one vocabulary.
#[derive(Debug)]
pub(super) struct Cuts {
    rule: Rule,
    /// Tokens that are found in a text as they are written.
    added: Vec<String>,
    /// The bytes that they begin with, and their greatest length.
    begins: [bool; 256],
    longest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Between words.
    Words,
    /// There, and at digits, which are tokens of their own.
    Digits,
    /// Before a space.
    Spaces {
        /// A space is put in front of a text, so that a part that goes on has to begin without its own.
        put_in_front: bool,
    },
    Nowhere,
}

impl Cuts {
    pub(super) fn new(vocabulary: &Vocabulary) -> Self {
        let rule = match vocabulary.family {
            Family::Pieces if begins_words(vocabulary) => Rule::Spaces {
                put_in_front: vocabulary.add_space,
            },
            Family::Pieces => Rule::Nowhere,
            Family::Bytes => match vocabulary.cut.as_str() {
                "smollm" | "starcoder" | "refact" | "qwen2" => Rule::Digits,
                _ => Rule::Words,
            },
        };
        let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
        let added: Vec<String> = tokens
            .filter(|(_, kind)| matches!(kind, Kind::Control | Kind::UserDefined))
            .map(|(token, _)| token.clone())
            .filter(|token| !token.is_empty())
            .collect();
        let mut begins = [false; 256];
        for byte in added.iter().filter_map(|token| token.bytes().next()) {
            begins[usize::from(byte)] = true;
        }
        Self {
            rule,
            longest: added.iter().map(String::len).max().unwrap_or(0),
            added,
            begins,
        }
    }

    /// The first part of a text, of about `wanted` bytes or of as many as it takes, and the rest.
    pub(super) fn split<'a>(&self, text: &'a str, wanted: usize) -> (&'a str, &'a str) {
        let near = text.floor_char_boundary(wanted);
        if near == text.len() {
            return (text, "");
        }
        let back = text[..near].char_indices().rev().map(|(at, _)| at);
        let on = text[near..].char_indices().map(|(at, _)| near + at);
        let at = back
            .filter(|at| *at > 0)
            .find(|at| self.is_cut(text, *at))
            .or_else(|| on.filter(|at| *at > 0).find(|at| self.is_cut(text, *at)));
        let Some(at) = at else { return (text, "") };
        let (part, rest) = text.split_at(at);
        match self.rule {
            Rule::Spaces { put_in_front: true } => (part, &rest[1..]),
            _ => (part, rest),
        }
    }

    fn is_cut(&self, text: &str, at: usize) -> bool {
        let (left, right) = text.split_at(at);
        let (Some(before), Some(after)) = (left.chars().next_back(), right.chars().next()) else {
            return false;
        };
        let is_cut = match self.rule {
            Rule::Nowhere => false,
            Rule::Words => between_words(before, after),
            Rule::Digits => {
                between_words(before, after)
                    || (before.is_ascii_digit() && after.is_ascii())
                    || (before.is_ascii_graphic() && after.is_ascii_digit())
            }
            Rule::Spaces { .. } => {
                let next = right[after.len_utf8()..].chars().next();
                before.is_ascii_graphic()
                    && after == ' '
                    && next.is_some_and(|next| next.is_ascii_alphabetic())
            }
        };
        is_cut && !self.is_near_added(text, at)
    }

    /// Whether a token that is found as it is written crosses this place, or touches it where that matters.
    fn is_near_added(&self, text: &str, at: usize) -> bool {
        // A space is put in front of what follows such a token: there, the space of the text is another one.
        let touches = usize::from(matches!(self.rule, Rule::Spaces { .. }));
        let first = at.saturating_sub(self.longest);
        let text = text.as_bytes();
        (first..at + 2 * touches).any(|start| {
            let rest = &text[start.min(text.len())..];
            rest.first()
                .is_some_and(|byte| self.begins[usize::from(*byte)])
                && self.added.iter().any(|token| {
                    start + token.len() + touches > at && rest.starts_with(token.as_bytes())
                })
        })
    }
}

/// Whether every way to cut cuts between these. What is before is no space, so nothing that looks ahead for one sees
/// the difference.
fn between_words(before: char, after: char) -> bool {
    let ends_word = is_letter(before) && is_no_letter(after);
    let begins_word = (before.is_ascii_graphic() || is_letter(before)) && after == ' ';
    ends_word || begins_word
}

/// Letters beyond doubt, with which nothing composes.
const fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic()
        || matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}')
}

/// Neither letter nor mark, beyond doubt.
const fn is_no_letter(c: char) -> bool {
    (c.is_ascii() && !c.is_ascii_alphabetic()) || matches!(c, '，' | '。' | '、')
}

/// Whether a space begins every token that has one, so that nothing is merged across the place before it.
fn begins_words(vocabulary: &Vocabulary) -> bool {
    let tokens = vocabulary.tokens.iter().zip(&vocabulary.kinds);
    let mut normal = tokens.filter(|(_, kind)| **kind == Kind::Normal);
    let mark_is_known = normal.clone().any(|(token, _)| token == SPACE_MARK);
    mark_is_known
        && normal.all(|(token, _)| !token.trim_start_matches(SPACE_MARK).contains(SPACE_MARK))
}
