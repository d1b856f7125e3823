//! Where text ends in a terminal, so that the cursor can go back.
//!
//! Lines are broken here and not by the terminal: what it does with a full last column differs from one to the next.

use unicode_width::UnicodeWidthChar as _;

/// A place, counted from where the answer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    row: usize,
    column: usize,
}

impl Cursor {
    /// Moves to the end of a token's text, and returns the text with the line breaks it needs.
    pub(super) fn lay(&mut self, token: &str, columns: usize) -> String {
        let mut laid = String::with_capacity(token.len() + 1);
        let word = token.trim_start_matches(' ');
        let mut rest = token;
        // A word that no longer fits goes to the next line, and the space before it stays behind.
        if word.len() < token.len() && self.column + width(token) >= columns {
            self.line_break(&mut laid);
            rest = word;
        }
        for c in rest.chars() {
            let width = c.width().unwrap_or(0);
            if c == '\n' || self.column + width >= columns {
                self.line_break(&mut laid);
            }
            if c != '\n' {
                laid.push(c);
                self.column += width;
            }
        }
        laid
    }

    fn line_break(&mut self, laid: &mut String) {
        // With a carriage return, because the terminal may be in raw mode.
        laid.push_str("\r\n");
        self.row += 1;
        self.column = 0;
    }

    /// The control sequence that takes the cursor from here back to `earlier`.
    pub(super) fn back_to(self, earlier: Self) -> String {
        let mut sequence = "\r".to_owned();
        // A count of 0 would be taken for 1.
        let rows = self.row.saturating_sub(earlier.row);
        if rows > 0 {
            sequence.push_str(&format!("\x1b[{rows}A"));
        }
        if earlier.column > 0 {
            sequence.push_str(&format!("\x1b[{}C", earlier.column));
        }
        sequence
    }
}

fn width(text: &str) -> usize {
    text.chars().filter_map(|c| c.width()).sum()
}

/// The text without what could move the cursor, change colours or turn the direction of writing.
pub(super) fn harmless(text: &str) -> String {
    let replaced = text.chars().map(|c| match c {
        '\n' => '\n',
        '\t' => ' ',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    replaced.collect()
}
