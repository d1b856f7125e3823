//! What each method answered, with the first token that BF16 did not give, and the drafts that were taken back.

use std::collections::BTreeMap;

use super::{Escaped, Html, Section, push};
use crate::run::{Event, RunResult};

/// The answers, folded.
pub(super) fn html(section: &Section<'_>) -> Html {
    let mut html = Html::from("<details class=answers><summary>The answers</summary><dl>");
    for (run, figures) in section.runs.iter().zip(&section.figures) {
        let difference = section
            .reference()
            .and_then(|bf16| figures.first_difference(bf16));
        let same = difference.unwrap_or(figures.tokens.len());
        let text = |tokens: &[crate::run::Token]| -> String {
            tokens.iter().map(|token| token.text.as_str()).collect()
        };
        let (same, other) = figures.tokens.split_at(same.min(figures.tokens.len()));
        push!(
            html,
            "<div><dt>{}</dt><dd>{}",
            run.method,
            Escaped(&text(same))
        );
        if !other.is_empty() {
            push!(html, "<mark>{}</mark>", Escaped(&text(other)));
        }
        let taken_back = taken_back(run);
        if !taken_back.is_empty() {
            html.push_str("<p>Drafted and taken back, each time:");
            for text in taken_back {
                push!(html, " <del>{}</del>", Escaped(&text));
            }
            html.push_str("</p>");
        }
        html.push_str("</dd></div>");
    }
    html.push_str("</dl><p class=note>Marked: what is not BF16's answer.</p></details>\n");
    html
}

/// The texts of the drafts that were retracted, one for each retraction.
fn taken_back(run: &RunResult) -> Vec<String> {
    let mut standing: BTreeMap<u32, &str> = BTreeMap::new();
    let mut texts = Vec::new();
    for event in &run.events {
        match event {
            Event::Token {
                index,
                text,
                provisional: true,
                ..
            } => {
                standing.insert(*index, text);
            }
            Event::Retracted { from_index, .. } => {
                let wrong = standing.split_off(from_index);
                if !wrong.is_empty() {
                    texts.push(wrong.into_values().collect());
                }
            }
            _ => {}
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use lynx_units::BitRate;

    use super::*;
    use crate::run::{Method, Scenario};

    fn draft(index: u32, text: &str) -> Event {
        Event::Token {
            index,
            token: index,
            text: text.to_owned(),
            t: f64::from(index),
            provisional: true,
        }
    }

    #[test]
    fn what_is_taken_back_twice_is_two_texts() {
        let back = |from_index| Event::Retracted { from_index, t: 9.0 };
        let run = RunResult {
            method: Method::LynxExact,
            scenario: Scenario::Warm,
            prompt: String::new(),
            prompt_tokens: 1,
            link_bps: BitRate::ZERO.bits_per_second(),
            memory_bytes: [None; 2],
            answer: Vec::new(),
            events: vec![
                draft(1, "a"),
                draft(2, "men"),
                draft(3, "tal"),
                back(2),
                draft(2, " is"),
                draft(3, " a crate"),
                back(3),
                back(3),
            ],
        };
        assert_eq!(taken_back(&run), ["mental", " a crate"]);
    }
}
