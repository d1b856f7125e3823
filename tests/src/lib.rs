//! What needs more than one room: the rules that hold between crates, and whatever takes real processes.
//!
//! The rules themselves are functions here, so that each can be shown to catch a planted mistake; the files in `tests/`
//! hold them against this repository. Unit tests do not belong here: they live beside what they test.
#![forbid(unsafe_code)]

pub mod layering;
pub mod licence;
pub mod style;
