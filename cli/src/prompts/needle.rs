//! Needles: one sentence with a secret code, hidden in a long report, and asked for at its end.

use super::{Kind, Seeded, Source, generated};

/// A sentence to hide and to find again.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    sentence: String,
    /// Where to hide it, in thousandths of the context.
    depth: usize,
    /// What an answer that found it holds.
    pub(super) answer: String,
}

impl Needle {
    /// The context with the sentence as a paragraph of its own, before the paragraph that its depth falls into.
    pub(super) fn hidden_in(&self, context: &str) -> String {
        let wanted = context.floor_char_boundary(context.len().saturating_mul(self.depth) / 1000);
        let at = context[..wanted]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let (above, below) = context.split_at(at);
        format!("{above}{}\n\n{below}", self.sentence)
    }
}

/// Archives, so that each needle has a name of its own.
const ARCHIVES: [&str; 8] = [
    "Lisbon",
    "Tromsø",
    "Kraków",
    "Valparaíso",
    "Nagoya",
    "Windhoek",
    "Halifax",
    "Brno",
];

/// One needle for each archive, at depths from one end of the context to the other.
pub(super) fn sources(seed: u64) -> Vec<Source> {
    let sources = ARCHIVES.iter().enumerate().map(|(index, archive)| {
        let name = format!("needle-{}", index + 1);
        let mut seeded = Seeded::new(seed, &name);
        let code = format!("{}", seeded.between(10_000, 99_999));
        let text = if index % 2 == 0 {
            generated::minutes(&mut seeded)
        } else {
            generated::inspections(&mut seeded)
        };
        Source {
            text,
            name,
            kind: Kind::Needle,
            question: format!(
                "What is the secret code of the {archive} archive? Give the code first. \
                 Then say in your own words what the rest of the text is about."
            ),
            needle: Some(Needle {
                sentence: format!("The secret code of the {archive} archive is {code}."),
                // An eighth of the context each, and somewhere within it.
                depth: index * 125 + seeded.below(125),
                answer: code,
            }),
        }
    });
    sources.collect()
}
