//! Columns that line up.

use std::io::{self, Write};

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
        let rule = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
        for (index, line) in lines().enumerate() {
            if index == self.header.len() {
                writeln!(out, "{}", "-".repeat(rule))?;
            }
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 {
                    text.push_str(&format!("{cell:<width$}"));
                } else {
                    text.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}
