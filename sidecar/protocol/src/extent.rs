//! Where bytes of payload are, without the bytes.

use lynx_units::{Bytes, SegmentIndex, TransferId, UnitIndex};

/// `len` bytes at `offset` of one segment of one unit of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The transfer.
    pub transfer: TransferId,
    /// The unit, in plan order.
    pub unit: UnitIndex,
    /// The segment of the unit.
    pub segment: SegmentIndex,
    /// First byte, from the segment's start.
    pub offset: u32,
    /// Number of bytes; zero only for a segment that is empty.
    pub len: u32,
}

impl Extent {
    /// The length as a count of bytes.
    pub const fn bytes(&self) -> Bytes {
        Bytes::new(self.len as u64)
    }

    /// One past the last byte, from the segment's start.
    pub const fn end(&self) -> u64 {
        self.offset as u64 + self.len as u64
    }
}
