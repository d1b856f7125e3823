//! What each method answered, with the first token that BF16 did not give, and the drafts that were taken back.

use super::{Escaped, Html, Section, lanes, push};
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
            push!(
                html,
                "<p>Drafted and taken back: <del>{}</del></p>",
                Escaped(&taken_back)
            );
        }
        html.push_str("</dd></div>");
    }
    html.push_str("</dl><p class=note>Marked: what is not BF16's answer.</p></details>\n");
    html
}

/// The text of the retracted drafts, in order.
fn taken_back(run: &RunResult) -> String {
    let retracted = lanes::retracted(&run.events);
    let drafts = run.events.iter().filter_map(|event| match event {
        Event::Token {
            index,
            text,
            provisional: true,
            ..
        } if retracted.contains(index) => Some(text.as_str()),
        _ => None,
    });
    drafts.collect()
}
