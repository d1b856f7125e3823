//! Identities. Each is a type of its own, so that a unit is never taken for a segment.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One transfer: the KV of one request's prompt, from one sender to one receiver. Unique per pair of peers.
    TransferId(u64)
}
id! {
    /// One life of a link between two peers. A reconnection is a new epoch; frames of an older one are dropped.
    Epoch(u32)
}
id! {
    /// A unit of a transfer: (layer, K or V, token range), numbered in the order of the transfer's plan.
    UnitIndex(u32)
}
id! {
    /// A segment of a unit, in order of significance.
    SegmentIndex(u16)
}
