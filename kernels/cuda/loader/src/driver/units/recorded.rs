//! Launches of units, recorded once for their plan: those of the next layer are one call.

use lynx_gpu::{Extents, Launch};

use super::super::Captured;

/// How many are kept: for K and V of a prompt's middle and of its ends, each split, merged to some depths and restored.
const MOST: usize = 24;

/// What is recorded of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) build: String,
    pub(super) launch: Launch,
    /// With the units' rows of raw tokens, where the build has them; then without.
    pub(super) kernels: [Option<&'static str>; 2],
    /// What of the checksums is added after.
    pub(super) sums: Option<Extents>,
}

/// What is recorded: the parts of one unit, or of several.
pub(super) type Recipe = Vec<Part>;

/// The recordings, the one that was used last behind the others.
#[derive(Debug, Default)]
pub(super) struct Recordings {
    kept: Vec<(Recipe, Captured)>,
    made: usize,
}

impl Recordings {
    /// None is of any use any more: the memory that they name is gone.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    pub(super) fn take(&mut self, recipe: &Recipe) -> Option<Captured> {
        let found = self.kept.iter().position(|(known, _)| known == recipe)?;
        Some(self.kept.remove(found).1)
    }

    pub(super) fn note(&mut self) {
        self.made += 1;
    }

    pub(super) fn keep(&mut self, recipe: Recipe, captured: Captured) {
        if self.kept.len() == MOST {
            self.kept.remove(0);
        }
        self.kept.push((recipe, captured));
    }

    /// How many were made.
    pub(super) fn made(&self) -> usize {
        self.made
    }
}
