//! The table of a page of the docs, which is as these tests find it.

use std::fmt;
use std::path::Path;

/// Between `<!-- NAME: begin -->` and `<!-- NAME: end -->` of docs/governor.md.
pub(crate) struct Table {
    name: &'static str,
    text: String,
}

impl Table {
    /// One that has its heading.
    pub(crate) fn new(name: &'static str, heading: &str) -> Self {
        let text = heading.to_owned();
        Self { name, text }
    }

    pub(crate) fn add(&mut self, row: &str) {
        self.text += row;
    }

    /// Holds the page against this.
    pub(crate) fn compare(&self) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/governor.md");
        let page = std::fs::read_to_string(&page).unwrap();
        let [begin, end] =
            ["begin -->\n", "end -->"].map(|which| format!("<!-- {}: {which}", self.name));
        let (_, rest) = page.split_once(&begin).unwrap();
        let (table, _) = rest.split_once(&end).unwrap();
        assert!(
            table == self.text,
            "docs/governor.md has another table between its marks; this is the right one:\n{self}"
        );
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
