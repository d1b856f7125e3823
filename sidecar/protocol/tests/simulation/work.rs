//! What the two applications do: which transfers, of which shape, with which bytes.

use std::sync::Arc;
use std::time::Duration;

use lynx_protocol::TransferPlan;
use lynx_protocol::sender::Segment;
use lynx_units::{SegmentIndex, TransferId, UnitIndex};

use super::random::Random;

/// The levels of the segments of every unit: two for the anchor, four residual ones, the last the tail.
pub(crate) const LEVELS: [u8; 5] = [0, 0, 1, 2, 3];

/// One transfer, as both applications see it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) transfer: TransferId,
    pub(crate) units: u32,
    /// Most bytes of a segment.
    pub(crate) bound: u32,
    pub(crate) seed: u64,
    /// When it is offered, from the start of the run.
    pub(crate) open_at: Duration,
    /// Time between two units.
    pub(crate) pace: Duration,
    pub(crate) lifetime: Duration,
    pub(crate) cancel_at: Option<Duration>,
    pub(crate) rejected: bool,
    /// The sending application gives the transfer up instead of publishing this unit, and publishes nonsense before.
    pub(crate) fails_at: Option<u32>,
    /// No segment has a byte.
    pub(crate) empty: bool,
}

impl Job {
    /// A plain transfer.
    pub(crate) fn new(transfer: u64, units: u32, bound: u32) -> Self {
        Self {
            transfer: TransferId(transfer),
            units,
            bound,
            seed: transfer,
            open_at: Duration::ZERO,
            pace: Duration::ZERO,
            lifetime: Duration::from_secs(60),
            cancel_at: None,
            rejected: false,
            fails_at: None,
            empty: false,
        }
    }

    /// What both sides derive their plan from.
    pub(crate) fn descriptor(&self) -> Vec<u8> {
        let mut bytes = self.units.to_le_bytes().to_vec();
        bytes.extend(self.bound.to_le_bytes());
        bytes.push(u8::from(self.rejected));
        bytes
    }

    pub(crate) fn plan(&self) -> Arc<TransferPlan> {
        plan(self.units, self.bound)
    }

    /// A segment's bytes: of varying length, some empty. They count up from a random number, a word at a time: as telling
    /// as random ones where bytes are mixed up, and made as fast as memory is written.
    pub(crate) fn payload(&self, unit: UnitIndex, segment: SegmentIndex) -> Vec<u8> {
        let name = u64::from(unit.0) << 16 | u64::from(segment.0);
        let mut random = Random::new(self.seed.wrapping_mul(0x1_0001) ^ name << 20);
        let bound = u64::from(self.bound);
        let len = match random.within(0, 10) {
            _ if self.empty => 0,
            0 => 0,
            1..8 => bound,
            _ => random.within(0, bound + 1),
        };
        let len = usize::try_from(len).unwrap();
        let first = random.next() | 1;
        let mut bytes = vec![0; len.next_multiple_of(8)];
        let mut word = first;
        for place in bytes.as_chunks_mut::<8>().0 {
            *place = word.to_le_bytes();
            word = word.wrapping_add(first);
        }
        bytes.truncate(len);
        bytes
    }
}

/// The plan of a descriptor, and whether the receiving application takes it.
pub(crate) fn parse(descriptor: &[u8]) -> (Arc<TransferPlan>, bool) {
    let number = |at: usize| u32::from_le_bytes(descriptor[at..at + 4].try_into().unwrap());
    (plan(number(0), number(4)), descriptor[8] == 0)
}

fn plan(units: u32, bound: u32) -> Arc<TransferPlan> {
    Arc::new(TransferPlan::new(units, &LEVELS, |_, _| bound).unwrap())
}

/// What a codec says about a segment; the checksum is a sum over words, which is enough against mistakes of this code.
pub(crate) fn describe(payload: &[u8]) -> Segment {
    let (words, rest) = payload.as_chunks::<8>();
    let mut sum = payload.len() as u64;
    for word in words {
        sum = sum.rotate_left(5) ^ u64::from_le_bytes(*word);
    }
    for &byte in rest {
        sum = sum.rotate_left(5) ^ u64::from(byte);
    }
    Segment {
        len: u32::try_from(payload.len()).unwrap(),
        checksum: sum,
    }
}
