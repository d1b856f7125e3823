//! The timeline of runs as one HTML page: what each method was doing, when, on one time axis, with the figures above it.
//!
//! Self-contained: style and script are in the page, nothing is fetched, and without the script all is still there. Built with
//! formatting and not a template engine, because nearly all of it is SVG computed from events. Prompt and answer are hostile text:
//! everything that does not come from this module passes through `Escaped`, and the page's own policy admits no other script.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest as _, Sha256};

use crate::rows::TtftRow;
use crate::run::{Figures, Method, RunResult, Scenario};
use crate::table;

mod answers;
mod chart;
mod escape;
mod figures;
mod lanes;
mod scale;
mod spans;

use escape::Escaped;
use scale::Axis;

const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");
const READING: &str = include_str!("report/reading.html");
const LEGEND: &str = include_str!("report/legend.html");

/// What the page shows.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Facts about the model, the machine and the link, as name and value, in order.
    pub facts: Vec<(String, String)>,
    /// The runs. Those of one setting share a section, a table and a time axis.
    pub runs: Vec<RunResult>,
    /// Prompts by name, whole, to be shown folded.
    pub prompts: Vec<(String, String)>,
}

/// The runs that are compared with each other, and what the parts of a section need of them.
struct Section<'a> {
    runs: Vec<&'a RunResult>,
    rows: Vec<TtftRow>,
    figures: Vec<Figures>,
    axis: Axis,
}

impl<'a> Section<'a> {
    fn new(runs: Vec<&'a RunResult>) -> Self {
        let figures: Vec<Figures> = runs.iter().map(|run| run.figures()).collect();
        let bf16 = runs.iter().find(|run| run.method == Method::Bf16).copied();
        let rows = runs.iter().map(|run| TtftRow::of(run, bf16)).collect();
        let end = runs.iter().map(|run| run.end_s()).fold(0.0, f64::max);
        Self {
            rows,
            figures,
            axis: Axis::to(end),
            runs,
        }
    }

    fn row_of(&self, method: Method) -> Option<&TtftRow> {
        self.rows.iter().find(|row| row.method == method)
    }

    /// The figures of the BF16 run.
    fn reference(&self) -> Option<&Figures> {
        let bf16 = self.runs.iter().position(|run| run.method == Method::Bf16);
        bf16.map(|index| &self.figures[index])
    }
}

/// A part of the page.
type Html = String;

/// Appends formatted text to a String; `write!` would do so through an error that can't happen.
macro_rules! push {
    ($html:expr, $($format:tt)*) => {
        $html.push_str(&format!($($format)*))
    };
}
use push;

impl Page {
    /// The whole page.
    pub fn html(&self) -> String {
        let mut html = self.head();
        push!(
            html,
            "<header><p class=eyebrow>Lynx timeline</p><h1>{}</h1>",
            Escaped(&self.title)
        );
        html.push_str("<dl class=facts>");
        for (name, value) in &self.facts {
            push!(
                html,
                "<div><dt>{}</dt><dd>{}</dd></div>",
                Escaped(name),
                Escaped(value)
            );
        }
        html.push_str("</dl></header>\n<main>\n");
        for section in self.sections() {
            html.push_str(&section_html(&section));
        }
        html.push_str(READING);
        for (name, text) in &self.prompts {
            push!(
                html,
                "<details class=prompt><summary>The prompt {}</summary><pre>{}</pre></details>\n",
                Escaped(name),
                Escaped(text)
            );
        }
        push!(html, "</main>\n<script>{SCRIPT}</script>\n</html>\n");
        html
    }

    fn head(&self) -> Html {
        format!(
            "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
             <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src '{}'; script-src '{}'\">\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
             <meta name=color-scheme content=\"light dark\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n",
            fingerprint(STYLE),
            fingerprint(SCRIPT),
            Escaped(&self.title),
        )
    }

    fn sections(&self) -> Vec<Section<'_>> {
        let mut groups: Vec<Vec<&RunResult>> = Vec::new();
        for run in &self.runs {
            match groups
                .iter_mut()
                .find(|group| group[0].setting() == run.setting())
            {
                Some(group) => group.push(run),
                None => groups.push(vec![run]),
            }
        }
        groups.into_iter().map(Section::new).collect()
    }
}

/// How a Content-Security-Policy names an inline style or script.
fn fingerprint(content: &str) -> String {
    format!("sha256-{}", BASE64.encode(Sha256::digest(content)))
}

fn section_html(section: &Section<'_>) -> Html {
    let Some(first) = section.runs.first() else {
        return Html::new();
    };
    let heading = match first.scenario {
        Scenario::Cold => "Cold: the prompt is prefilled while its KV is sent",
        Scenario::Warm => "Warm: the prompt was prefilled before",
    };
    let mut html = Html::new();
    push!(
        html,
        "<section><h2>{heading}</h2><p class=setting>{} <span>{} prompt tokens</span> <span>{} link</span></p>\n",
        Escaped(&first.prompt),
        first.prompt_tokens,
        table::link(first.link_bps)
    );
    html.push_str(&figures::headline(section));
    html.push_str(&figures::table(section));
    push!(
        html,
        "<figure>{}<div class=timeline data-end=\"{:.6}\"><div class=crosshair hidden><output></output></div>",
        chart::key(section),
        section.axis.end()
    );
    html.push_str(&chart::tokens_over_time(section));
    html.push_str(&section.axis.html());
    for (run, figures) in section.runs.iter().zip(&section.figures) {
        html.push_str(&lanes::method(run, figures, &section.axis));
    }
    push!(html, "</div><figcaption>{LEGEND}</figcaption></figure>\n");
    html.push_str(&answers::html(section));
    html.push_str("</section>\n");
    html
}
