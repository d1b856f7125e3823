//! What was found, and what to do about it.

use std::io::{self, Write};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Good,
    /// It works, but slower or less safe than it could; or it is nothing that every machine needs.
    Note,
    /// It keeps an agent from working.
    Problem,
}

impl Grade {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Problem => "FIX",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of what.
    pub subject: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// What was found, as a sentence without its end.
    pub found: String,
    /// What to do; empty where there is nothing to do.
    pub remedy: String,
}

impl Finding {
    pub(super) fn good(subject: &'static str, found: impl Into<String>) -> Self {
        Self::new(subject, Grade::Good, found, "")
    }

    pub(super) fn note(
        subject: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(subject, Grade::Note, found, remedy)
    }

    pub(super) fn problem(
        subject: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(subject, Grade::Problem, found, remedy)
    }

    fn new(
        subject: &'static str,
        grade: Grade,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            grade,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

/// Writes findings for people, one or two lines each, and what they come to.
///
/// # Errors
/// Where `out` can't be written to.
pub fn write(out: &mut impl Write, findings: &[Finding]) -> io::Result<()> {
    for finding in findings {
        let Finding {
            subject,
            grade,
            found,
            remedy,
        } = finding;
        writeln!(out, "{:>5}  {subject:<12}  {found}", grade.word())?;
        if !remedy.is_empty() {
            writeln!(out, "{:>21}-> {remedy}", "")?;
        }
    }
    let count = |grade| findings.iter().filter(|found| found.grade == grade).count();
    let (problems, notes) = (count(Grade::Problem), count(Grade::Note));
    writeln!(
        out,
        "\n{problems} to fix, {notes} to note, {} in order",
        count(Grade::Good)
    )
}
