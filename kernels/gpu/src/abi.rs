//! The structures of `kernels/cuda/unit.cuh` and `sum.cuh`, field by field. Addresses are those of the device.

use lynx_kernels::Checksum;

/// The coded tokens of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Of the first, from the first page's start.
    pub position: u32,
    /// 16 to 64.
    pub tokens: u32,
    /// Bytes of a word (K) or tokens (V) in all tiles of earlier blocks.
    pub before: u32,
    /// [`Block::MOVES`] and [`Block::ADDS`].
    pub aligned: u32,
}

impl Block {
    /// Words can be moved 16 bytes at a time.
    pub const MOVES: u32 = 1;
    /// All pieces are whole 64-bit words, of which a tile adds up the checksum.
    pub const ADDS: u32 = 2;
}

/// Raw tokens in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Of the first, from the first page's start.
    pub position: u32,
    /// How many.
    pub tokens: u32,
}

/// What all units of a launch have in common. Strides are in elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// From a page to the next.
    pub page_stride: u64,
    /// From a token to the next in its page.
    pub token_stride: u32,
    /// From a head to the next.
    pub head_stride: u32,
    /// Binary logarithm of a page's tokens.
    pub page_shift: u32,
    /// KV heads.
    pub heads: u32,
    /// Blocks with coded tokens.
    pub blocks: u32,
    /// Runs of raw tokens.
    pub runs: u32,
    /// Steps to merge; all for a split.
    pub steps: u32,
    /// V: planes of the first step.
    pub anchor: u32,
    /// V: planes of all `steps`.
    pub planes: u32,
    /// Bytes of all parameters.
    pub param_bytes: u32,
    /// Tokens of all runs.
    pub raw_tokens: u32,
    /// K: words of a tile before each step.
    pub ends: [u32; 9],
    /// The blocks.
    pub block: [Block; 9],
    /// The runs.
    pub run: [Run; 4],
}

/// One unit's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The engine's cache: the first page's first element.
    pub kv: u64,
    /// The number of each page (u32), from the one that holds the unit's first token.
    pub pages: u64,
    /// K: [`Places`](crate::Places).
    pub places: u64,
    /// K, to merge: [`Cut`](crate::Cut).
    pub cuts: u64,
    /// K: [`Launch::owners`](crate::Launch::owners).
    pub owners: u64,
    /// The head.
    pub head: u64,
    /// The steps.
    pub step: [u64; 8],
    /// The tail.
    pub tail: u64,
    /// Its length, to restore.
    pub tail_bytes: u64,
    /// For the tail: a number (u32) more than there are tiles, all zero before the launch.
    pub published: u64,
    /// [`Status`].
    pub status: u64,
}

impl Unit {
    /// As it lies in memory.
    pub fn to_bytes(self) -> Vec<u8> {
        let first = [
            self.kv,
            self.pages,
            self.places,
            self.cuts,
            self.owners,
            self.head,
        ];
        let last = [self.tail, self.tail_bytes, self.published, self.status];
        let all = first.into_iter().chain(self.step).chain(last);
        all.flat_map(u64::to_ne_bytes).collect()
    }
}

/// What a launch found out about a unit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Groups that a split escaped: with any, their values are still missing in the head.
    pub escaped: u32,
    /// The first `tile << 16 | group` whose parameters, or whose codes, are impossible; all ones for none.
    pub refused: u32,
    /// The length of the tail that was made.
    pub tail_bytes: u32,
    /// The first tile whose sections don't fit its codes; all ones for none.
    pub unfit: u32,
    /// For the checksums of the head, eight steps and the tail; see [`Status::checksum`].
    pub sums: [u64; 10],
}

impl Status {
    /// What a unit has before a launch.
    pub const NEW: Self = Self {
        escaped: 0,
        refused: u32::MAX,
        tail_bytes: 0,
        unfit: u32::MAX,
        sums: [0; 10],
    };

    /// As it lies in memory.
    pub fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.escaped, self.refused, self.tail_bytes, self.unfit];
        let sums = self.sums.into_iter().flat_map(u64::to_ne_bytes);
        numbers
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .chain(sums)
            .collect()
    }

    /// From memory; what is missing is zero.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (sums, _) = bytes.get(16..).unwrap_or(&[]).as_chunks::<8>();
        let (numbers, _) = bytes.as_chunks::<4>();
        let number = |i: usize| numbers.get(i).map_or(0, |it| u32::from_ne_bytes(*it));
        Self {
            escaped: number(0),
            refused: number(1),
            tail_bytes: number(2),
            unfit: number(3),
            sums: std::array::from_fn(|i| sums.get(i).map_or(0, |it| u64::from_ne_bytes(*it))),
        }
    }

    /// The first (tile, group) with impossible parameters or codes.
    pub fn refusal(self) -> Option<(u32, u32)> {
        (self.refused != u32::MAX).then_some((self.refused >> 16, self.refused & 0xffff))
    }

    /// The checksum of a segment of `bytes` bytes whose sum is complete. Segments are numbered as in [`Extent::segment`].
    pub fn checksum(self, segment: usize, bytes: usize) -> Option<u64> {
        let sum = Checksum::from_sum(*self.sums.get(segment)?);
        Some(sum.finish(bytes as u64))
    }
}

/// A piece of a segment whose checksum no tile adds up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// 0 for the head, 1 to 8 for the steps, 9 for the tail.
    pub segment: u32,
    /// Where it starts, in bytes: a multiple of 8.
    pub from: u32,
    /// Its length: a multiple of 8, but at the segment's end. All ones for a tail: as long as it is.
    pub bytes: u32,
}

/// What `lynx_sum` adds up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// How many there are.
    pub count: u32,
    /// The first ones.
    pub extent: [Extent; 20],
}

impl Extent {
    /// The tail's number.
    pub const TAIL: u32 = 9;

    /// A whole tail, however long.
    pub const WHOLE_TAIL: Self = Self {
        segment: Self::TAIL,
        from: 0,
        bytes: u32::MAX,
    };
}

impl Extents {
    /// These, where they are few enough for one launch.
    pub fn new(extents: &[Extent]) -> Option<Self> {
        let mut told = Self {
            count: u32::try_from(extents.len()).ok()?,
            ..Self::default()
        };
        told.extent
            .get_mut(..extents.len())?
            .copy_from_slice(extents);
        Some(told)
    }

    /// Blocks of threads for `units` units: (extents, blocks for each, units).
    pub fn grid(&self, units: u32) -> [u32; 3] {
        const BYTES_OF_BLOCK: u32 = 16 << 10;
        let longest = self.extent.iter().map(|extent| extent.bytes).max();
        let blocks = longest.unwrap_or(0).div_ceil(BYTES_OF_BLOCK).clamp(1, 64);
        [self.count, blocks, units]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_in_bytes_have_no_gaps_and_come_back() {
        assert_eq!(Unit::default().to_bytes().len(), size_of::<Unit>());
        assert_eq!(Status::NEW.to_bytes().len(), size_of::<Status>());
        let status = Status {
            escaped: 1,
            refused: 2,
            tail_bytes: 3,
            unfit: 4,
            sums: std::array::from_fn(|i| i as u64 + 5),
        };
        assert_eq!(Status::from_bytes(&status.to_bytes()), status);
    }
}
