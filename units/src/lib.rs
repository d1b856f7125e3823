//! The words every room of Lynx speaks: byte counts, link rates, moments, identities, priorities and anchor widths.
//!
//! A unit is a type, so that a rate is never added to a length. Nothing here has behaviour beyond arithmetic, parsing and
//! printing, and nothing reads a clock: a [`Timestamp`] is always handed in.
#![no_std]
#![forbid(unsafe_code)]

mod bytes;
mod ids;
mod parse;
mod priority;
mod rate;
mod time;
mod width;

pub use bytes::Bytes;
pub use ids::{Epoch, SegmentIndex, TransferId, UnitIndex};
pub use parse::ParseError;
pub use priority::Priority;
pub use rate::BitRate;
pub use time::Timestamp;
pub use width::Width;
