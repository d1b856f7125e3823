//! Why a sender does not take a command.

use lynx_units::{TransferId, UnitIndex};

use crate::wire::EncodeError;

/// Why an offer can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The link is over.
    #[error("the link is over: open the transfer on a new one")]
    Over,
    /// The name was used before.
    #[error(
        "transfer {0} was opened before in this epoch: give every transfer and every retry a new number"
    )]
    Reused(TransferId),
    /// Too many transfers.
    #[error("{0} transfers are open on this link, the most there may be: wait until one ends")]
    TooMany(usize),
    /// The deadline is now or earlier.
    #[error("the deadline of transfer {0} has passed already")]
    Late(TransferId),
    /// The descriptor is too long.
    #[error("transfer {0} can't be offered")]
    Descriptor(TransferId, #[source] EncodeError),
}

/// Why a unit can't be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No such transfer, or no longer.
    #[error("transfer {0} is over or was never opened: drop its units")]
    Unknown(TransferId),
    /// Not a unit of the plan.
    #[error("unit {0} is not in the plan")]
    Unit(UnitIndex),
    /// Published before.
    #[error("unit {0} was published before")]
    Twice(UnitIndex),
    /// None, or more segments than the plan still has.
    #[error("{given} segments of a unit were published, and its plan has {planned} left")]
    Segments {
        /// Segments given.
        given: usize,
        /// Segments in the plan that were not published yet.
        planned: usize,
    },
    /// A segment is longer than the plan allows.
    #[error("a segment has {len} bytes, and its plan allows {bound}: the codec's bound is wrong")]
    Bound {
        /// Bytes given.
        len: u32,
        /// Bytes allowed.
        bound: u32,
    },
}
