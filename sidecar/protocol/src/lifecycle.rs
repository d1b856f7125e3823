//! The life of a transfer, on each side.
//!
//! A step consumes the state, so that no mixture of two states can exist. A side that is over stays over: whatever comes
//! later is late and changes nothing.

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The transfer is over: drop what came, and count it.
    Late,
    /// An honest peer can't do this in this state.
    Illegal,
}

/// The sender's side.
///
/// ```text
///   open ─▶ Offered ──Accept──▶ Streaming ──AllSent──▶ Sent ──Done──▶ Complete
///              │                    │                    │
///              ├──Reject──▶ Failed  │                    │
///              └────────────────────┴────────────────────┴──Cancel──▶ Cancelled
///                                                        └──Fail────▶ Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The receiver has not answered yet.
    Offered,
    /// Published units are being sent.
    Streaming,
    /// Every segment of the plan has been handed out.
    Sent,
    /// The receiver has every byte.
    Complete,
    /// It could not be finished.
    Failed,
    /// An application did not want it any more.
    Cancelled,
}

/// What happens to a sender's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendingInput {
    Accept,
    Reject,
    AllSent,
    Done,
    Cancel,
    /// A failure of either side, a deadline, the end of the link.
    Fail,
}

impl Sending {
    pub(crate) fn step(self, input: SendingInput) -> Result<Self, Refused> {
        use SendingInput as In;
        match (self, input) {
            (Self::Complete | Self::Failed | Self::Cancelled, _) => Err(Refused::Late),
            (_, In::Fail) => Ok(Self::Failed),
            (_, In::Cancel) => Ok(Self::Cancelled),
            (Self::Offered, In::Accept) => Ok(Self::Streaming),
            (Self::Offered, In::Reject) => Ok(Self::Failed),
            (Self::Streaming, In::AllSent) => Ok(Self::Sent),
            (Self::Sent, In::Done) => Ok(Self::Complete),
            (Self::Offered | Self::Streaming | Self::Sent, _) => Err(Refused::Illegal),
        }
    }
}

/// The receiver's side.
///
/// ```text
///   Open ─▶ Offered ──Accept──▶ AwaitingAnchor ──Anchor──▶ AwaitingRest ──Everything──▶ Complete
///              │                      │                         │
///              ├──Reject──▶ Rejected  │                         │
///              └──────────────────────┴─────────────────────────┴──Cancel──▶ Cancelled
///                                                               └──Fail────▶ Failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// The application has not answered yet.
    Offered,
    /// Accepted; the anchor is not complete.
    AwaitingAnchor,
    /// The anchor is complete, a residual level isn't.
    AwaitingRest,
    /// Every byte is here.
    Complete,
    /// The application did not take it.
    Rejected,
    /// It could not be finished.
    Failed,
    /// An application did not want it any more.
    Cancelled,
}

/// What happens to a receiver's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivingInput {
    Accept,
    Reject,
    Anchor,
    Everything,
    Cancel,
    /// A failure of either side, a deadline, the end of the link.
    Fail,
}

impl Receiving {
    pub(crate) fn step(self, input: ReceivingInput) -> Result<Self, Refused> {
        use ReceivingInput as In;
        match (self, input) {
            (Self::Complete | Self::Rejected | Self::Failed | Self::Cancelled, _) => {
                Err(Refused::Late)
            }
            (_, In::Fail) => Ok(Self::Failed),
            (_, In::Cancel) => Ok(Self::Cancelled),
            (Self::Offered, In::Accept) => Ok(Self::AwaitingAnchor),
            (Self::Offered, In::Reject) => Ok(Self::Rejected),
            (Self::AwaitingAnchor, In::Anchor) => Ok(Self::AwaitingRest),
            (Self::AwaitingRest, In::Everything) => Ok(Self::Complete),
            (Self::Offered | Self::AwaitingAnchor | Self::AwaitingRest, _) => Err(Refused::Illegal),
        }
    }
}

#[cfg(test)]
mod tests;
