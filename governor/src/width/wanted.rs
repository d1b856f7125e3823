//! What a deployment's spec says about its anchor.

use lynx_policy::{Bounds, Fidelity, Objective};
use lynx_units::Width;

/// What a deployment's spec says about its anchor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// How the width is found.
    pub mode: Mode,
    /// What to hasten.
    pub objective: Objective,
    /// What "full" means.
    pub fidelity: Fidelity,
    /// Whether K's planes follow a profile of the model.
    pub profile: bool,
}

/// How the width is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the spec.
    Fixed(Width),
    /// From the links.
    Adaptive(Bounds),
}

impl Wanted {
    /// The width before anything is known: four bits, as `lynx_policy::choose_width` has it, within what is allowed.
    pub(super) fn first(&self) -> Width {
        self.clamp(Width::from_bits(4).unwrap_or(Width::FULL))
    }

    /// A width, moved to where the spec allows it.
    pub(super) fn clamp(&self, width: Width) -> Width {
        match self.mode {
            Mode::Fixed(fixed) => fixed,
            Mode::Adaptive(bounds) => bounds.clamp(width),
        }
    }
}
