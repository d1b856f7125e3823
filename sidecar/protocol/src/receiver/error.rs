//! Why a receiver does not take a command.

use lynx_units::{Bytes, TransferId};

/// Why an offer can't be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// Not an open offer.
    #[error("transfer {0} is not on offer: it is over, or was answered before")]
    NotOffered(TransferId),
    /// A segment of the plan is longer than the window of its priority, so it could never arrive.
    #[error(
        "a segment may have {segment}, and the receive window is {window}: raise the window or make units smaller"
    )]
    Window {
        /// Longest segment of the plan.
        segment: Bytes,
        /// The window of its priority.
        window: Bytes,
    },
}
