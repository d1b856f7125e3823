//! The two priorities of a transfer.

/// What goes first. `Anchor < Residual`, in sending order: a pending anchor is always picked before any residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The most significant bits: what the decode engine waits for before it can draft.
    Anchor,
    /// Everything else, down to the exact tail.
    Residual,
}

impl Priority {
    /// Both, in sending order.
    pub const ALL: [Self; 2] = [Self::Anchor, Self::Residual];

    /// 0 for the anchor, 1 for the residual: the index of per-priority tables and the value on the wire.
    pub const fn index(self) -> usize {
        match self {
            Self::Anchor => 0,
            Self::Residual => 1,
        }
    }

    /// The priority with this [`index`](Self::index).
    pub const fn from_index(index: usize) -> Option<Self> {
        match index {
            0 => Some(Self::Anchor),
            1 => Some(Self::Residual),
            _ => None,
        }
    }
}
