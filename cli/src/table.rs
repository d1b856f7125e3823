//! The tables of the demo and the bench, for a terminal of 100 columns, a file or a pipe.
//!
//! No colours and no box drawing: the same text is read on a screen, in a CI log and in a pasted report. Ratios are printed whichever
//! way they fall; a method that loses is said to be later, in the same place and words.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lynx_units::{BitRate, Bytes};

use crate::rows::TtftRow;
use crate::run::{Method, Scenario};
use crate::stats;

mod grid;
mod ratios;

pub(crate) use ratios::Ratios;

use grid::Grid;

/// What isn't known, or never came.
const DASH: &str = "-";

/// The rows of each setting, in the order in which the settings first appear.
fn by_setting(rows: &[TtftRow]) -> Vec<Vec<&TtftRow>> {
    let mut groups: Vec<Vec<&TtftRow>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&TtftRow>| group[0].setting() == row.setting();
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// One table for each setting, with Lynx's methods against BF16 and INT8 below it.
///
/// # Errors
///
/// Those of `out`.
pub fn write_runs(out: &mut dyn Write, rows: &[TtftRow]) -> io::Result<()> {
    for (index, group) in by_setting(rows).into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_setting(out, &group)?;
    }
    Ok(())
}

fn write_setting(out: &mut dyn Write, rows: &[&TtftRow]) -> io::Result<()> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    writeln!(
        out,
        "{}, {} prompt tokens, {}, {} link\n",
        first.prompt,
        first.prompt_tokens,
        scenario(first.scenario),
        link(first.link_bps)
    )?;
    let reference = rows.iter().find(|row| row.method == Method::Bf16);
    let mut grid = Grid::new(&[
        ["", "", ""],
        ["", "on the", "wire"],
        ["", "share", "of BF16"],
        ["1st", "token", "s"],
        ["2nd", "token", "s"],
        ["2nd", "verified", "s"],
        ["32nd", "verified", "s"],
        ["64th", "verified", "s"],
        ["", "drafts", "kept"],
        ["", "equal", "to BF16"],
    ]);
    for row in rows {
        let provisional = if row.drafted > 0 { "~" } else { "" };
        grid.row([
            row.method.to_string(),
            Bytes::new(row.wire_bytes).to_string(),
            percent(reference.and_then(|bf16| share(row, bf16))),
            seconds(row.t_first_s),
            format!("{provisional}{}", seconds(row.t_second_s)),
            seconds(row.t_second_verified_s),
            seconds(row.t32_s),
            seconds(row.t64_s),
            drafts(row),
            yes_no(row.equal_to_bf16).to_owned(),
        ]);
    }
    grid.without_empty_columns(DASH).write(out)?;
    if rows.iter().any(|row| row.drafted > 0) {
        writeln!(
            out,
            "~ provisional: drafted on the anchor, not yet verified"
        )?;
    }
    let ratios = ratio_grid(rows);
    if !ratios.is_empty() {
        writeln!(out)?;
        ratios.without_empty_columns(DASH).write(out)?;
    }
    Ok(())
}

/// How many times sooner Lynx's methods are than BF16 and INT8, or later.
fn ratio_grid(rows: &[&TtftRow]) -> Grid {
    let mut grid = Grid::new(&[
        [""],
        ["bytes"],
        ["2nd token"],
        ["2nd verified"],
        ["32nd verified"],
        ["64th verified"],
    ]);
    let row_of = |wanted| rows.iter().find(|row| row.method == wanted);
    for method in [Method::LynxInt8, Method::LynxExact] {
        for against in [Method::Bf16, Method::Int8] {
            let (Some(row), Some(other)) = (row_of(method), row_of(against)) else {
                continue;
            };
            let ratios = Ratios::of(row, other);
            let times = |ratio: Option<f64>| ratio.map_or_else(none, sooner);
            grid.row([
                format!("{method} against {against}"),
                ratios
                    .bytes
                    .map_or_else(none, |bytes| format!("{bytes:.2}x")),
                times(ratios.second),
                times(ratios.second_verified),
                times(ratios.t32),
                times(ratios.t64),
            ]);
        }
    }
    grid
}

/// What the prompts of one summary have in common: scenario, least power of two that no prompt's length passes, link.
type Summarised = (Scenario, u32, u64);

/// One table for each scenario, length and link: the geometric means of the ratios to BF16 over the prompts.
///
/// # Errors
///
/// Those of `out`.
pub fn write_summary(out: &mut dyn Write, rows: &[TtftRow]) -> io::Result<()> {
    let mut summaries: BTreeMap<Summarised, BTreeMap<Method, Vec<Compared<'_>>>> = BTreeMap::new();
    for group in by_setting(rows) {
        let Some(bf16) = group.iter().find(|row| row.method == Method::Bf16) else {
            continue;
        };
        let length = bf16.prompt_tokens.checked_next_power_of_two();
        let of = (bf16.scenario, length.unwrap_or(u32::MAX), bf16.link_bps);
        let methods = summaries.entry(of).or_default();
        for row in &group {
            let compared = Compared {
                row,
                ratios: Ratios::of(row, bf16),
            };
            methods.entry(row.method).or_default().push(compared);
        }
    }
    for (index, ((scenario_of, length, link_bps), methods)) in summaries.into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let prompts = methods.values().map(Vec::len).max().unwrap_or(0);
        writeln!(
            out,
            "{prompts} {} of up to {length} tokens, {}, {} link",
            if prompts == 1 { "prompt" } else { "prompts" },
            scenario(scenario_of),
            link(link_bps),
        )?;
        writeln!(
            out,
            "Times sooner than BF16, geometric mean; below 1: later\n"
        )?;
        summary_grid(&methods).write(out)?;
    }
    Ok(())
}

/// A row and its ratios to the BF16 row of the same setting.
struct Compared<'a> {
    row: &'a TtftRow,
    ratios: Ratios,
}

fn summary_grid(methods: &BTreeMap<Method, Vec<Compared<'_>>>) -> Grid {
    let mut grid = Grid::new(&[
        ["", ""],
        ["share of", "BF16 bytes"],
        ["2nd", "token"],
        ["2nd", "verified"],
        ["32nd", "verified"],
        ["64th", "verified"],
        ["drafts", "kept"],
        ["equal to", "BF16"],
    ]);
    for (method, runs) in methods {
        let mean = |pick: fn(&Ratios) -> Option<f64>| {
            // A method that missed a moment on one prompt has no mean there, rather than one over the others.
            let ratios: Option<Vec<f64>> = runs.iter().map(|run| pick(&run.ratios)).collect();
            ratios.and_then(|ratios| stats::geometric_mean(&ratios))
        };
        let times = |pick| mean(pick).map_or_else(none, |ratio| format!("{ratio:.2}x"));
        let rows = || runs.iter().map(|run| run.row);
        let equal = rows().filter(|row| row.equal_to_bf16 == Some(true)).count();
        let (kept, drafted) = rows().fold((0_u64, 0_u64), |(kept, drafted), row| {
            (
                kept + u64::from(row.accepted),
                drafted + u64::from(row.drafted),
            )
        });
        grid.row([
            method.to_string(),
            percent(mean(|ratios| ratios.bytes)),
            times(|ratios| ratios.second),
            times(|ratios| ratios.second_verified),
            times(|ratios| ratios.t32),
            times(|ratios| ratios.t64),
            if drafted > 0 {
                format!("{kept} of {drafted}")
            } else {
                none()
            },
            format!("{equal} of {}", runs.len()),
        ]);
    }
    grid
}

/// `warm (KV already there)`, as headings say it.
pub(crate) const fn scenario(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Warm => "warm (prompt already prefilled)",
        Scenario::Cold => "cold (prefill while sending)",
    }
}

/// The link's rate, or that it has no limit.
pub(crate) fn link(bps: u64) -> String {
    match bps {
        0 => "unlimited".to_owned(),
        bps => BitRate::from_bits_per_second(bps).to_string(),
    }
}

/// Seconds to the millisecond, or a dash.
pub(crate) fn seconds(t: Option<f64>) -> String {
    t.map_or_else(none, |t| format!("{t:.3}"))
}

/// A share as a percentage, or a dash.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(none, |share| format!("{:.1} %", share * 100.0))
}

/// `19 of 21`, or a dash for a method that doesn't draft.
pub(crate) fn drafts(row: &TtftRow) -> String {
    if row.drafted > 0 {
        format!("{} of {}", row.accepted, row.drafted)
    } else {
        none()
    }
}

/// `yes`, `NO`, or a dash where it isn't known.
pub(crate) const fn yes_no(fact: Option<bool>) -> &'static str {
    match fact {
        Some(true) => "yes",
        Some(false) => "NO",
        None => DASH,
    }
}

/// This row's bytes as a share of the other's.
pub(crate) fn share(row: &TtftRow, of: &TtftRow) -> Option<f64> {
    Ratios::of(row, of).bytes
}

/// `1.38x sooner`, `1.20x later`, or `as soon` within half a per cent.
pub(crate) fn sooner(ratio: f64) -> String {
    if (0.995..=1.005).contains(&ratio) {
        "as soon".to_owned()
    } else if ratio > 1.0 {
        format!("{ratio:.2}x sooner")
    } else {
        format!("{:.2}x later", 1.0 / ratio)
    }
}

fn none() -> String {
    DASH.to_owned()
}

#[cfg(test)]
mod tests;
