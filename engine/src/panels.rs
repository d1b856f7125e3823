//! A matrix of activations, cut into panels of 64 columns.
//!
//! Panel `p` holds columns `64 p` to `64 p + 63` of all rows, row after row: `[columns / 64][rows][64]`. A panel is what one
//! task of a matrix product writes, so that threads get disjoint slices without a shared mutable matrix, and it is also what
//! the products read 64 inputs at a time.

/// Columns of a panel.
pub(crate) const PANEL: usize = 64;

/// One row of a panel.
pub(crate) type Row = [f32; PANEL];

/// Activations: a row per token, cut into panels.
#[derive(Debug, Default)]
pub(crate) struct Panels {
    rows: usize,
    data: Vec<Row>,
}

impl Panels {
    /// Makes room for `rows` rows of `columns` (a multiple of 64) columns; what they hold is unspecified.
    pub(crate) fn resize(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.data.resize(columns / PANEL * rows, [0.0; PANEL]);
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// All panels, one after the other, `rows()` rows each.
    pub(crate) fn data(&self) -> &[Row] {
        &self.data
    }

    /// All panels, to be written.
    pub(crate) fn data_mut(&mut self) -> &mut [Row] {
        &mut self.data
    }

    /// Row `row` of panel `panel`.
    pub(crate) fn row(&self, panel: usize, row: usize) -> &Row {
        &self.data[panel * self.rows + row]
    }

    /// Row `row` of panel `panel`, to be written.
    pub(crate) fn row_mut(&mut self, panel: usize, row: usize) -> &mut Row {
        &mut self.data[panel * self.rows + row]
    }

    /// The parts of one row, panel by panel.
    pub(crate) fn whole_row(&self, row: usize) -> impl Iterator<Item = &Row> {
        self.data.iter().skip(row).step_by(self.rows.max(1))
    }
}
