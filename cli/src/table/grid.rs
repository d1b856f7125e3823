//! Columns that line up.

use std::io::{self, Write};

/// Between two columns.
const GAP: &str = "  ";

/// Rows of cells under a header of several lines. The first column is flush left, the others flush right.
#[derive(Debug)]
pub(super) struct Grid {
    header: Vec<Vec<String>>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A grid whose header has one entry for each column, each of `LINES` lines.
    pub(super) fn new<const LINES: usize>(columns: &[[&str; LINES]]) -> Self {
        let line = |line: usize| columns.iter().map(move |column| column[line].to_owned());
        Self {
            header: (0..LINES).map(|index| line(index).collect()).collect(),
            rows: Vec::new(),
        }
    }

    /// Leaves out the columns that say nothing in any row.
    pub(super) fn without_empty_columns(mut self, dash: &str) -> Self {
        let says = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column));
            self.rows.is_empty() || cells.any(|cell| cell != dash)
        };
        let columns = self.header.first().map_or(0, Vec::len);
        let kept: Vec<bool> = (0..columns).map(says).collect();
        for line in self.header.iter_mut().chain(&mut self.rows) {
            let mut kept = kept.iter();
            line.retain(|_| kept.next().is_none_or(|kept| *kept));
        }
        self
    }

    /// Whether it has a header only.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = || self.header.iter().chain(&self.rows);
        let columns = lines().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = lines().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let rule = widths.iter().sum::<usize>() + columns.saturating_sub(1) * GAP.len();
        for (index, line) in lines().enumerate() {
            if index == self.header.len() {
                writeln!(out, "{}", "-".repeat(rule))?;
            }
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 {
                    text.push_str(&format!("{cell:<width$}"));
                } else {
                    text.push_str(&format!("{GAP}{cell:>width$}"));
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}
