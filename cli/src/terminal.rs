//! The answer as it is decided, in a terminal or a pipe.
//!
//! A drafted token is shown at once, dimmed, and rewritten when the verification says otherwise; what stands in normal type is
//! final. Where the output is no terminal, or the user wants no colours, nothing can be rewritten: drafts then have lines of their
//! own, marked as such, and only verified text follows them. Whatever the model says, it can't steer the terminal: control
//! characters are replaced.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::Event;

mod layout;

use layout::{Cursor, harmless};

/// What the output can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text goes out once and stays.
    Plain,
    /// Text can be dimmed and rewritten.
    Terminal {
        /// Characters in a line.
        columns: u16,
    },
}

impl Style {
    /// The style for an output: `columns` is its width, where it is a terminal; `no_color` is whether the user has set
    /// NO_COLOR to anything but nothing.
    pub const fn choose(columns: Option<u16>, no_color: bool) -> Self {
        match columns {
            // Narrower than this, a redrawn draft could be taller than the window.
            Some(columns) if columns >= 20 && !no_color => Self::Terminal { columns },
            _ => Self::Plain,
        }
    }

    /// A bar for `steps` steps, on the standard error output; invisible in [`Style::Plain`].
    pub fn progress(self, label: &str, steps: u64) -> ProgressBar {
        self.bar(
            label,
            steps,
            "{prefix:24} {bar:40.cyan/dim} {pos}/{len} {eta:>4}",
        )
    }

    /// A sign of life for work of unknown length, on the standard error output; invisible in [`Style::Plain`].
    pub fn spinner(self, label: &str) -> ProgressBar {
        if self == Self::Plain {
            return ProgressBar::hidden();
        }
        let spinner = ProgressBar::new_spinner().with_message(label.to_owned());
        spinner.enable_steady_tick(Duration::from_millis(120));
        spinner
    }

    fn bar(self, label: &str, length: u64, template: &str) -> ProgressBar {
        if self == Self::Plain {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━╸─");
        ProgressBar::new(length)
            .with_style(style)
            .with_prefix(label.to_owned())
    }
}

/// One answer on its way out. Hand it every event of a run, in order.
pub struct Answer<'a> {
    out: &'a mut dyn Write,
    screen: Screen,
    /// Tokens that are shown but not verified.
    provisional: VecDeque<(u32, String)>,
}

/// Where the output stands.
enum Screen {
    Plain {
        /// Whether the current line is empty.
        fresh: bool,
        /// Whether the current line is one of drafts.
        drafting: bool,
    },
    Terminal {
        columns: usize,
        /// The end of the verified text.
        verified: Cursor,
        /// The end of what is shown.
        shown: Cursor,
    },
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("provisional", &self.provisional)
            .finish_non_exhaustive()
    }
}

impl<'a> Answer<'a> {
    /// An answer that begins at the start of a line.
    pub fn new(out: &'a mut dyn Write, style: Style) -> Self {
        let screen = match style {
            Style::Plain => Screen::Plain {
                fresh: true,
                drafting: false,
            },
            Style::Terminal { columns } => Screen::Terminal {
                columns: columns.into(),
                verified: Cursor::default(),
                shown: Cursor::default(),
            },
        };
        Self {
            out,
            screen,
            provisional: VecDeque::new(),
        }
    }

    /// Shows what this event changes.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn on_event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Token {
                index,
                text,
                provisional: true,
                ..
            } => self.provisional_token(*index, &harmless(text))?,
            Event::Token {
                index,
                text,
                provisional: false,
                ..
            } => self.verified_token(*index, &harmless(text))?,
            Event::Redraft { tokens, kept, .. } => self.second_thoughts(*tokens, *kept),
            Event::Verify { .. } => self.verdict()?,
            Event::Retracted { from_index, .. } => {
                self.provisional.retain(|(index, _)| index < from_index);
                self.redraw("")?;
            }
            Event::Finished { .. } => writeln!(self.out)?,
            _ => return Ok(()),
        }
        self.out.flush()
    }

    /// In plain text a draft can't be rewritten: what replaces it from the first mistake on is a draft of its own.
    fn second_thoughts(&mut self, tokens: u32, kept: u32) {
        if let Screen::Plain { drafting, .. } = &mut self.screen
            && kept < tokens
        {
            *drafting = false;
        }
    }

    fn provisional_token(&mut self, index: u32, text: &str) -> io::Result<()> {
        match &mut self.screen {
            Screen::Plain { fresh, drafting } => {
                if !*drafting {
                    let gap = if *fresh { "" } else { "\n" };
                    write!(self.out, "{gap}[draft] ")?;
                }
                (*fresh, *drafting) = (false, true);
                // A draft keeps to its line, so that what is in brackets ends with it.
                write!(self.out, "{}", text.replace('\n', " "))?;
            }
            Screen::Terminal { columns, shown, .. } => {
                let text = shown.lay(text, *columns);
                write!(self.out, "\x1b[2m{text}\x1b[22m")?;
            }
        }
        self.provisional.push_back((index, text.to_owned()));
        Ok(())
    }

    fn verified_token(&mut self, index: u32, text: &str) -> io::Result<()> {
        self.provisional.retain(|(drafted, _)| *drafted > index);
        match &mut self.screen {
            Screen::Plain { fresh, drafting } => {
                let gap = if *drafting { "\n" } else { "" };
                (*fresh, *drafting) = (text.ends_with('\n'), false);
                write!(self.out, "{gap}{text}")
            }
            Screen::Terminal { .. } => self.redraw(text),
        }
    }

    /// Verified text begins: what follows is final.
    fn verdict(&mut self) -> io::Result<()> {
        if let Screen::Plain { drafting, .. } = &mut self.screen
            && *drafting
        {
            write!(self.out, "\n[verified] ")?;
            *drafting = false;
        }
        Ok(())
    }

    /// In a terminal, goes back to the end of the verified text, appends to it, and shows the provisional tokens after it.
    fn redraw(&mut self, newly_verified: &str) -> io::Result<()> {
        let Screen::Terminal {
            columns,
            verified,
            shown,
        } = &mut self.screen
        else {
            return Ok(());
        };
        // One write for all of it, or a slow terminal would flicker.
        let mut text = shown.back_to(*verified);
        text.push_str("\x1b[J");
        text.push_str(&verified.lay(newly_verified, *columns));
        *shown = *verified;
        text.push_str("\x1b[2m");
        for (_, token) in &self.provisional {
            text.push_str(&shown.lay(token, *columns));
        }
        text.push_str("\x1b[22m");
        self.out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests;
