//! The figures above the timeline: how Lynx compares, and the table.

use lynx_units::Bytes;

use super::{Html, Section, push};
use crate::rows::TtftRow;
use crate::run::Method;
use crate::table::{self, Ratios};

/// The most exact Lynx method against BF16 and INT8, won or lost.
pub(super) fn headline(section: &Section<'_>) -> Html {
    let lynx = [Method::LynxExact, Method::LynxInt8];
    let Some(row) = lynx.iter().find_map(|method| section.row_of(*method)) else {
        return Html::new();
    };
    let mut html = Html::from("<div class=scroll><table class=headline><thead><tr><th scope=col>");
    push!(
        html,
        "{} against<th scope=col>bytes<th scope=col>2nd token{}<th scope=col>2nd verified<th scope=col>32nd verified<th scope=col>64th verified<tbody>",
        row.method,
        if row.drafted > 0 { ", provisional" } else { "" }
    );
    for against in [Method::Bf16, Method::Int8, Method::Int4] {
        let Some(other) = section.row_of(against) else {
            continue;
        };
        let ratios = Ratios::of(row, other);
        push!(html, "<tr><th scope=row>{against}");
        push!(
            html,
            "<td>{}",
            ratios
                .bytes
                .map_or_else(dash, |bytes| format!("<b>{bytes:.2}</b>×"))
        );
        for ratio in [
            ratios.second,
            ratios.second_verified,
            ratios.t32,
            ratios.t64,
        ] {
            push!(html, "<td>{}", ratio.map_or_else(dash, sooner));
        }
    }
    html.push_str("</table></div>\n");
    html
}

/// `<b>1.38</b>× sooner`, in the colours of better and worse.
fn sooner(ratio: f64) -> String {
    let told = table::sooner(ratio);
    match told.split_once("x ") {
        Some((times, "sooner")) => format!("<b>{times}</b>× <i class=sooner>sooner</i>"),
        Some((times, _)) => format!("<b>{times}</b>× <i class=later>later</i>"),
        None => format!("<i>{told}</i>"),
    }
}

/// All methods, all figures.
pub(super) fn table(section: &Section<'_>) -> Html {
    let mut html = Html::from(
        "<div class=scroll><table class=figures><thead><tr><th scope=col>method<th scope=col colspan=2>on the wire\
         <th scope=col>1st token<th scope=col>2nd token<th scope=col>2nd verified<th scope=col>32nd verified\
         <th scope=col>64th verified<th scope=col>drafts kept<th scope=col>equal to BF16<tbody>",
    );
    let most_bytes = section.rows.iter().map(|row| row.wire_bytes).max();
    for (index, row) in section.rows.iter().enumerate() {
        push!(
            html,
            "<tr class={}><th scope=row>{}",
            row.method.id(),
            row.method
        );
        html.push_str(&wire_cells(section, row, most_bytes.unwrap_or(0)));
        push!(html, "<td>{}", time(row.t_first_s));
        let provisional = row.drafted > 0;
        push!(
            html,
            "<td{}>{}",
            if provisional {
                " class=provisional title=\"provisional: drafted, not yet verified\""
            } else {
                ""
            },
            time(row.t_second_s)
        );
        for t in [row.t_second_verified_s, row.t32_s, row.t64_s] {
            push!(html, "<td>{}", time(t));
        }
        push!(
            html,
            "<td>{}<td>{}",
            table::drafts(row).replace('-', "–"),
            equal(section, index)
        );
    }
    html.push_str("</table></div>\n<p class=note>One run of each method. Times, and how many drafts stand, differ from run to run, the more so on a busy machine.</p>\n");
    html
}

/// The bytes, their share of BF16's, and a bar.
fn wire_cells(section: &Section<'_>, row: &TtftRow, most: u64) -> Html {
    let bf16 = section.row_of(Method::Bf16);
    let share = bf16.and_then(|bf16| table::share(row, bf16));
    #[expect(clippy::cast_precision_loss, reason = "the length of a bar")]
    let length = row.wire_bytes as f64 / most.max(1) as f64 * 100.0;
    format!(
        "<td>{}<td class=share><svg aria-hidden=true><rect width=\"{length:.1}%\" height=\"100%\"/></svg>{}",
        Bytes::new(row.wire_bytes),
        table::percent(share).replace('-', "–"),
    )
}

/// Whether this run's answer is BF16's, and from where on it isn't.
fn equal(section: &Section<'_>, index: usize) -> String {
    let difference = section
        .reference()
        .and_then(|bf16| section.figures[index].first_difference(bf16));
    match (section.rows[index].equal_to_bf16, difference) {
        (Some(true), _) => "yes".to_owned(),
        (Some(false), Some(token)) => format!("<i class=later>no</i>, from token {}", token + 1),
        (Some(false), None) => "<i class=later>no</i>".to_owned(),
        (None, _) => dash(),
    }
}

fn time(t: Option<f64>) -> String {
    t.map_or_else(dash, |t| format!("{t:.3} s"))
}

fn dash() -> String {
    "–".to_owned()
}
