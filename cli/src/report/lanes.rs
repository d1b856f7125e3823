//! The lanes of one method: prefill, link, decode, tokens, one above the other on the section's axis.
//!
//! Places along the time axis are percentages, so that the page may be as wide as its window while text and line widths stay
//! what they are.

use std::collections::BTreeSet;

use lynx_units::Bytes;

use super::spans::link_spans;
use super::{Axis, Escaped, Html, push};
use crate::run::{Class, Event, Figures, RunResult};

/// The height of a lane, and where each begins.
const LANE: u32 = 20;
const LINK: u32 = LANE;
const DECODE: u32 = 2 * LANE;
const TOKENS: u32 = 3 * LANE;
const MARKS: u32 = 4 * LANE;
/// How much of its lane a bar fills, and the gap above it.
const BAR: u32 = 14;
const GAP: u32 = 3;

/// One method's name, its lanes and their labels.
pub(super) fn method(run: &RunResult, figures: &Figures, axis: &Axis) -> Html {
    let mut html = Html::new();
    push!(
        html,
        "<div class=\"method {}\"><div class=name><b>{}</b> <span>{}</span></div>\
         <ul class=lanes><li>prefill<li>link<li>decode<li>tokens</ul>\
         <svg role=img aria-label=\"Timeline of {}\">",
        run.method.id(),
        run.method,
        Bytes::new(figures.wire_bytes),
        run.method
    );
    let mut lanes = Lanes { axis, html };
    lanes.link(run);
    for event in &run.events {
        lanes.event(event);
    }
    lanes.tokens(run);
    lanes.milestones(figures);
    lanes.html.push_str("</svg></div>\n");
    lanes.html
}

struct Lanes<'a> {
    axis: &'a Axis,
    html: Html,
}

/// A bar to draw.
struct Bar<'a> {
    class: &'a str,
    top: u32,
    start: f64,
    end: f64,
}

impl Lanes<'_> {
    fn bar(&mut self, bar: &Bar<'_>, tip: &str) {
        let (x, end) = (self.axis.at(bar.start), self.axis.at(bar.end));
        // What is too short to be seen is still drawn, and neighbours overlap a little, or the page would shine through.
        let width = (end - x).max(0.0) + 0.03;
        push!(
            self.html,
            "<rect class=\"{}\" x=\"{x:.3}%\" y={} width=\"{width:.3}%\" height={BAR}><title>{}\n{}</title></rect>",
            bar.class,
            bar.top + GAP,
            Escaped(tip),
            span_of(bar.start, bar.end)
        );
    }

    fn link(&mut self, run: &RunResult) {
        let resolution = self.axis.end() / 400.0;
        for span in link_spans(&run.events, run.link_bps, resolution) {
            let (class, what) = match span.class {
                Class::Anchor if run.method.drafts() => ("anchor".to_owned(), "Anchor".to_owned()),
                Class::Anchor => ("anchor".to_owned(), "All of the KV".to_owned()),
                Class::Residual => (
                    format!("residual level-{}", span.level.min(6)),
                    format!("Residual, level {}", span.level),
                ),
            };
            let tip = format!("{what}: {}", Bytes::new(span.bytes));
            self.bar(
                &Bar {
                    class: &class,
                    top: LINK,
                    start: span.start,
                    end: span.end,
                },
                &tip,
            );
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::PrefillLayer {
                chunk,
                layer,
                start,
                end,
            } => {
                let shades = [
                    "prefill",
                    "prefill alternate",
                    "prefill odd",
                    "prefill odd alternate",
                ];
                let class = shades[((chunk % 2) * 2 + layer % 2) as usize];
                self.bar_at(
                    0,
                    class,
                    (*start, *end),
                    &format!("Prefill: chunk {chunk}, layer {layer}"),
                );
            }
            Event::Draft { index, start, end } => {
                self.bar_at(
                    DECODE,
                    "draft",
                    (*start, *end),
                    &format!("Draft of token {}", ordinal(*index)),
                );
            }
            Event::Redraft {
                tokens,
                kept,
                start,
                end,
            } => {
                let tip = format!(
                    "Comparison with a finer KV: {kept} of {tokens} drafted tokens stand so far"
                );
                self.bar_at(DECODE, "redraft", (*start, *end), &tip);
            }
            Event::Verify {
                tokens,
                accepted,
                start,
                end,
            } => {
                let tip = format!("Verification: {accepted} of {tokens} drafted tokens stand");
                self.bar_at(DECODE, "verify", (*start, *end), &tip);
            }
            Event::Decode { index, start, end } => {
                self.bar_at(
                    DECODE,
                    "decode",
                    (*start, *end),
                    &format!("Decoding of token {}", ordinal(*index)),
                );
            }
            Event::AnchorReady { t } => {
                self.moment("anchor-ready", *t, "Anchor ready: drafting may begin")
            }
            Event::FullReady { t } => self.moment("full-ready", *t, "All KV ready"),
            Event::Recompute { t, .. } => {
                self.moment("recompute", *t, "No KV came: computed here");
            }
            Event::Refined { level, t } => {
                let x = self.axis.at(*t);
                push!(
                    self.html,
                    "<circle class=refined cx=\"{x:.3}%\" cy={} r=2><title>KV refined to level {level}\n{t:.3} s</title></circle>",
                    DECODE
                );
            }
            Event::Sent { .. }
            | Event::LevelComplete { .. }
            | Event::Token { .. }
            | Event::Retracted { .. }
            | Event::Finished { .. }
            | Event::Summary { .. } => {}
        }
    }

    fn bar_at(&mut self, top: u32, class: &str, (start, end): (f64, f64), tip: &str) {
        let bar = Bar {
            class,
            top,
            start,
            end,
        };
        self.bar(&bar, tip);
    }

    /// A line through the link's and the decode engine's lanes.
    fn moment(&mut self, class: &str, t: f64, tip: &str) {
        let x = self.axis.at(t);
        push!(
            self.html,
            "<line class=\"moment {class}\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1={LINK} y2={}><title>{tip}\n{t:.3} s</title></line>",
            DECODE + LANE
        );
    }

    /// Provisional tokens are short ticks, verified ones long, retracted ones crosses.
    fn tokens(&mut self, run: &RunResult) {
        let retracted = retracted(&run.events);
        for event in &run.events {
            let Event::Token {
                index,
                text,
                t,
                provisional,
                ..
            } = event
            else {
                continue;
            };
            let number = ordinal(*index);
            let (class, top, what) = match (provisional, retracted.contains(index)) {
                (false, _) => ("verified", TOKENS + 2, "verified"),
                (true, false) => ("provisional", TOKENS + 9, "provisional, later verified"),
                (true, true) => ("retracted", TOKENS + 9, "provisional, later retracted"),
            };
            let x = self.axis.at(*t);
            push!(
                self.html,
                "<line class={class} x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1={top} y2={}><title>Token {number}, {what}: {}\n{t:.3} s</title></line>",
                TOKENS + LANE - 2,
                Escaped(&format!("{text:?}"))
            );
        }
    }

    /// The numbers of the verified tokens that the table names, below their ticks.
    fn milestones(&mut self, figures: &Figures) {
        let named = [(2, "2nd"), (32, "32nd"), (64, "64th")];
        let mut labels: Vec<(f64, String)> = Vec::new();
        for (count, name) in named {
            let Some(t) = figures.t_verified_s(count) else {
                continue;
            };
            // Labels that would run into each other in a narrow window become one.
            match labels.last_mut() {
                Some((last, label))
                    if self.axis.at(t) - self.axis.at(*last) < label_width(label) =>
                {
                    label.push_str(", ");
                    label.push_str(name);
                }
                _ => labels.push((t, name.to_owned())),
            }
        }
        for (t, label) in labels {
            let x = self.axis.at(t);
            let anchor = if x > 92.0 { "end" } else { "start" };
            push!(
                self.html,
                "<text class=milestone x=\"{x:.3}%\" y={} text-anchor={anchor}>{label}</text>",
                MARKS + 9
            );
        }
    }
}

/// How people count: from 1.
fn ordinal(index: u32) -> u64 {
    u64::from(index) + 1
}

/// How much of a narrow figure's width, in per cent, a milestone's label takes.
fn label_width(label: &str) -> f64 {
    if label.len() > 4 { 7.5 } else { 5.0 }
}

/// The tokens whose drafts were wrong.
fn retracted(events: &[Event]) -> BTreeSet<u32> {
    let mut wrong = BTreeSet::new();
    for event in events {
        let Event::Retracted {
            from_index,
            t: when,
        } = event
        else {
            continue;
        };
        wrong.extend(events.iter().filter_map(|event| match event {
            Event::Token {
                index,
                t,
                provisional: true,
                ..
            } if index >= from_index && t <= when => Some(*index),
            _ => None,
        }));
    }
    wrong
}

/// `1.203 to 1.220 s (17.0 ms)`.
fn span_of(start: f64, end: f64) -> String {
    format!("{start:.3} to {end:.3} s ({:.1} ms)", (end - start) * 1e3)
}
