//! What is wrong with a configuration.

use std::fmt;
use std::io;
use std::path::Path;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where: the field's path, and the variable where it came from there.
    pub at: String,
    /// What, and what is allowed.
    pub what: String,
}

/// Everything that is wrong, never nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// None where there are none.
    pub(super) fn of(mistakes: Vec<Mistake>) -> Result<(), Self> {
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(Self(mistakes))
        }
    }

    pub(super) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self(vec![Mistake {
            at: path.display().to_string(),
            what: format!("the file can't be read: {error}"),
        }])
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has a mistake:")?,
            count => write!(f, "the configuration has {count} mistakes:")?,
        }
        for Mistake { at, what } in &self.0 {
            write!(f, "\n  {at}: {what}")?;
        }
        f.write_str("\n`lynx-agent config` prints every field with its default and its meaning.")
    }
}

impl std::error::Error for Mistakes {}
