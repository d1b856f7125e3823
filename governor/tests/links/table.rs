//! The table of a page of the docs, which is as these tests find it.

use std::fmt;
use std::path::Path;

use super::world::Outcome;

const BEGIN: &str = "<!-- links: begin -->\n";
const END: &str = "<!-- links: end -->";

pub(crate) struct Table(String);

impl Default for Table {
    fn default() -> Self {
        Self(
            "| link | objective | over the clairvoyant | over the best fixed width | changes in any minute | in an hour |\n\
             |---|---|--:|--:|--:|--:|\n"
                .to_owned(),
        )
    }
}

impl Table {
    pub(crate) fn add(&mut self, link: &str, objective: &str, outcome: &Outcome) {
        self.0 += &format!(
            "| {link} | {objective} | {:+.1} % | {:+.1} % | {} | {} |\n",
            outcome.over_clairvoyant * 100.0,
            outcome.over_fixed * 100.0,
            outcome.most_in_a_minute,
            outcome.changes_an_hour,
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
