//! The cost model: which anchor width for which link, whether to draft and how deep.
//!
//! Two questions and nothing else: [`choose_width`] is asked once per deployment and link class (or by a lone agent for
//! itself), [`draft_depth`] once per transfer. Both are functions of what is handed in; what was accepted so far is kept
//! by an [`Acceptance`], whose clock is its caller's. The crate measures no link, sends nothing and holds no
//! hysteresis: when to follow a wandering answer is `lynx-governor`'s business.
//!
//! Why a model rather than a search over live traffic: there are few widths and three known costs (bytes, tokens, a
//! verification), so their sum answers at once, and it answers for a link that nobody has used yet.
#![no_std]
#![forbid(unsafe_code)]

mod acceptance;
mod choose;
mod cost;
mod draft;
mod prior;

pub use acceptance::{Acceptance, Drafts};
pub use choose::{Bounds, Choice, Expected, Inputs, Objective, choose_width};
pub use cost::{Arrival, Costs, Fidelity};
pub use draft::{DraftInputs, MAX_DEPTH, draft_depth, expected_accepted};
pub use prior::Prior;
