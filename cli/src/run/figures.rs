//! From events to figures.

use std::collections::BTreeMap;

use super::{Class, Event};

/// One verified token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its text.
    pub text: String,
    /// When it was verified, in seconds since the request.
    pub verified_s: f64,
}

/// What a run comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// All bytes sent, of both classes.
    pub wire_bytes: u64,
    /// The bytes that decoding had to wait for.
    pub anchor_bytes: u64,
    /// When the first token was known, provisional or not.
    pub t_first_s: Option<f64>,
    /// When the second token was first known, provisional or not: the first one that needs the transferred KV.
    pub t_second_s: Option<f64>,
    /// Tokens drafted on an incomplete KV.
    pub drafted: u32,
    /// Drafted tokens that stand.
    pub accepted: u32,
    /// The verified tokens of the answer, in order, up to the first that is missing.
    pub tokens: Vec<Token>,
}

impl Figures {
    /// Counts and times of these events, which may come in any order.
    pub fn of(events: &[Event]) -> Self {
        let mut sent: [u64; 2] = [0; 2];
        let mut known: BTreeMap<u32, f64> = BTreeMap::new();
        let mut verified: BTreeMap<u32, Token> = BTreeMap::new();
        let (mut drafted, mut accepted) = (0_u32, 0_u32);
        for event in events {
            match event {
                Event::Sent {
                    priority, bytes, ..
                } => {
                    let total = match priority {
                        Class::Anchor => &mut sent[0],
                        Class::Residual => &mut sent[1],
                    };
                    *total = (*total).max(*bytes);
                }
                Event::Verify { accepted: some, .. } => accepted = accepted.saturating_add(*some),
                Event::Token {
                    index,
                    text,
                    t,
                    provisional,
                    ..
                } => {
                    let first = known.entry(*index).or_insert(*t);
                    *first = first.min(*t);
                    drafted = drafted.saturating_add(u32::from(*provisional));
                    if !provisional {
                        verified.entry(*index).or_insert_with(|| Token {
                            text: text.clone(),
                            verified_s: *t,
                        });
                    }
                }
                _ => {}
            }
        }
        Self {
            wire_bytes: sent[0].saturating_add(sent[1]),
            anchor_bytes: sent[0],
            t_first_s: known.get(&0).copied(),
            t_second_s: known.get(&1).copied(),
            drafted,
            accepted,
            tokens: unbroken(verified),
        }
    }

    /// When the answer had `count` verified tokens; `None` where it never had, or where `count` is 0.
    pub fn t_verified_s(&self, count: usize) -> Option<f64> {
        let last = count.checked_sub(1)?;
        self.tokens.get(last)?;
        // A token counts once all before it stand, whatever order they were told in.
        Some(
            self.tokens[..count]
                .iter()
                .map(|token| token.verified_s)
                .fold(0.0, f64::max),
        )
    }

    /// The verified answer.
    pub fn text(&self) -> String {
        self.tokens
            .iter()
            .map(|token| token.text.as_str())
            .collect()
    }

    /// The first token at which the answers differ, or where one of them ends.
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let same = self
            .tokens
            .iter()
            .zip(&other.tokens)
            .take_while(|(mine, theirs)| mine.text == theirs.text)
            .count();
        (same < self.tokens.len().max(other.tokens.len())).then_some(same)
    }
}

/// The tokens 0, 1, 2, ... up to the first missing one.
fn unbroken(verified: BTreeMap<u32, Token>) -> Vec<Token> {
    let expected = 0_u32..;
    expected
        .zip(verified)
        .take_while(|(expected, (index, _))| expected == index)
        .map(|(_, (_, token))| token)
        .collect()
}
