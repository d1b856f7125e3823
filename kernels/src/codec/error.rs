//! What can be wrong with segments.

use core::fmt;

/// A part of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Parameters, raw tokens and escaped groups.
    Head,
    /// One step of code words.
    Step(usize),
    /// The exact tail.
    Tail,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("head"),
            Self::Step(step) => write!(f, "step {step}"),
            Self::Tail => f.write_str("tail"),
        }
    }
}

/// Segments that no encoder makes: damaged, of another plan, or hostile. Fetch the unit again or recompute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The caller asked for a number of steps that the plan doesn't have.
    #[error("{wanted} steps were to be merged, but the plan has 1 to {planned}")]
    Steps {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        planned: usize,
    },
    /// A segment is too short or too long.
    #[error(
        "the {segment} has {found} bytes where the plan needs {expected}: damaged, or made with another plan"
    )]
    Length {
        /// Which.
        segment: Segment,
        /// What the plan (and, in the head and the tail, the content so far) needs at least.
        expected: usize,
        /// What there is.
        found: usize,
    },
    /// Parameters that no values lead to.
    #[error("tile {tile}, group {group}: the parameters are impossible: the head is damaged")]
    Params {
        /// The tile, in the plan's order.
        tile: usize,
        /// The group.
        group: usize,
    },
    /// A code that no value has.
    #[error(
        "tile {tile}, group {group}: a code names a cell without values: the steps don't belong to the head"
    )]
    EmptyCell {
        /// The tile, in the plan's order.
        tile: usize,
        /// The group.
        group: usize,
    },
    /// The tail's sections don't have the lengths that the codes call for.
    #[error(
        "tile {tile}: the tail's sections don't fit the codes: the tail doesn't belong to the steps"
    )]
    Sections {
        /// The tile, in the plan's order.
        tile: usize,
    },
}
