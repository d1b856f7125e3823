//! The table of a page of the docs, which is as these tests find it.

use std::fmt;
use std::path::Path;

use super::world::Outcome;

const BEGIN: &str = "<!-- loads: begin -->\n";
const END: &str = "<!-- loads: end -->";

pub(crate) struct Table(String);

impl Default for Table {
    fn default() -> Self {
        Self(
            "| load | changes an hour | once settled | up, down and up | anchors or answers late | for at most | pods over the work alone |\n\
             |---|--:|--:|--:|--:|--:|--:|\n"
                .to_owned(),
        )
    }
}

impl Table {
    pub(crate) fn add(&mut self, load: &str, outcome: &Outcome) {
        self.0 += &format!(
            "| {load} | {:.1} | {} | {} | {:.2} % | {} s | {:.1} |\n",
            outcome.changes_an_hour,
            outcome.changes_once_settled,
            outcome.swings,
            outcome.slow_share * 100.0,
            outcome.slow_for,
            outcome.pods_over_work,
        );
    }

    /// Holds the page against this.
    pub(crate) fn compare(&self) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/governor.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let (_, rest) = text.split_once(BEGIN).unwrap();
        let (table, _) = rest.split_once(END).unwrap();
        assert!(
            table == self.0,
            "docs/governor.md has another table between its marks; this is the right one:\n{self}"
        );
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
