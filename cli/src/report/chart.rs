//! Tokens over time: one curve for each method, on the same axis as the lanes below it.

use super::{Axis, Html, Section, push};
use crate::run::{Event, Figures, RunResult};

/// The chart's own units: the width is stretched to the figure's.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 150.0;

/// A section's curves, and how high a token is.
struct Chart<'a> {
    axis: &'a Axis,
    token_height: f64,
}

/// Curves of verified tokens, and dotted ones of provisional tokens.
pub(super) fn tokens_over_time(section: &Section<'_>) -> Html {
    let counts = section.figures.iter().map(|figures| figures.tokens.len());
    let most = counts.max().unwrap_or(0).clamp(8, 4096);
    let chart = Chart {
        axis: &section.axis,
        token_height: HEIGHT / (f64::from(u16::try_from(most).unwrap_or(u16::MAX)) * 1.05),
    };
    let marks = [2_u16, 32, 64].into_iter();
    let marks: Vec<u16> = marks.filter(|mark| usize::from(*mark) <= most).collect();
    let mut html = Html::from("<div class=chart><svg class=scale aria-hidden=true>");
    for mark in &marks {
        let y = chart.height_of(f64::from(*mark)) + 4.0;
        let unit = if marks.last() == Some(mark) {
            " tokens"
        } else {
            ""
        };
        push!(
            html,
            "<text x=\"100%\" y={y:.1} text-anchor=end>{mark}{unit}</text>"
        );
    }
    push!(
        html,
        "</svg><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=none role=img aria-label=\"Tokens of the answer over time\">"
    );
    for mark in marks {
        let y = chart.height_of(f64::from(mark));
        push!(
            html,
            "<line class=level x1=0 x2={WIDTH} y1={y:.1} y2={y:.1} />"
        );
    }
    for (run, figures) in section.runs.iter().zip(&section.figures) {
        chart.curve(&mut html, run, "", &verified_moments(figures));
        chart.curve(&mut html, run, "provisional", &provisional_moments(run));
    }
    html.push_str("</svg></div>");
    html
}

/// What the curves stand for.
pub(super) fn key(section: &Section<'_>) -> Html {
    let mut html = Html::from("<ul class=curves>");
    let mut entry = |class: &str, name: &str| {
        push!(
            html,
            "<li><svg class=key aria-hidden=true><line class=\"curve {class}\" x1=0 x2=26 y1=6 y2=6 /></svg>{name}"
        );
    };
    for run in &section.runs {
        entry(run.method.id(), &run.method.to_string());
    }
    if section.runs.iter().any(|run| run.method.drafts()) {
        entry("provisional lynx-exact", "provisional");
    }
    html.push_str("</ul>");
    html
}

impl Chart<'_> {
    /// A path that rises by one token at each moment.
    fn curve(&self, html: &mut Html, run: &RunResult, kind: &str, moments: &[f64]) {
        if moments.is_empty() {
            return;
        }
        let mut path = format!("M0 {HEIGHT}");
        for (moment, count) in moments.iter().zip(1_u32..) {
            let x = self.axis.at(*moment) / 100.0 * WIDTH;
            push!(path, "H{x:.1}V{:.1}", self.height_of(f64::from(count)));
        }
        let id = run.method.id();
        push!(html, "<path class=\"curve {kind} {id}\" d=\"{path}\"/>");
    }

    fn height_of(&self, tokens: f64) -> f64 {
        (HEIGHT - tokens * self.token_height).max(0.0)
    }
}

/// When there were 1, 2, 3, ... verified tokens.
fn verified_moments(figures: &Figures) -> Vec<f64> {
    let counts = 1..=figures.tokens.len();
    counts.filter_map(|n| figures.t_verified_s(n)).collect()
}

/// When there were 1, 2, 3, ... tokens, the provisional ones included, until the verification.
fn provisional_moments(run: &RunResult) -> Vec<f64> {
    if !run.method.drafts() {
        return Vec::new();
    }
    let verified_at = run.events.iter().find_map(|event| match event {
        Event::Verify { end, .. } => Some(*end),
        _ => None,
    });
    let mut moments: Vec<f64> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Token {
                index,
                t,
                provisional,
                ..
            } if *provisional || *index == 0 => Some(*t),
            _ => None,
        })
        .filter(|t| verified_at.is_none_or(|end| *t < end))
        .collect();
    moments.sort_by(f64::total_cmp);
    moments
}
