use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use bolero::TypeGenerator;

use super::*;

const UNITS: u32 = 3;
const LEVELS: [u8; 3] = [0, 1, 1];
const BOUND: u32 = 32;

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Op {
    unit: u8,
    segment: u8,
    offset: u8,
    len: u8,
    lie: u8,
}

/// Byte by byte.
#[derive(Debug, Default)]
struct Model {
    begun: BTreeMap<(u32, u16), Vec<bool>>,
    done: BTreeSet<(u32, u16)>,
}

/// The true length of a segment; some are empty.
fn true_len(unit: u32, segment: u16) -> u32 {
    (unit * 3 + u32::from(segment)) * 5 % (BOUND + 1)
}

impl Model {
    fn expect(&self, part: &Part) -> Result<bool, Misfit> {
        let name = (part.unit.0, part.segment.0);
        if name.0 >= UNITS || usize::from(name.1) >= LEVELS.len() {
            return Err(Misfit::NotPlanned);
        }
        if part.segment_len > BOUND {
            return Err(Misfit::TooLong);
        }
        let end = part.offset + part.len;
        if end > part.segment_len || (part.len == 0) != (part.segment_len == 0) {
            return Err(Misfit::Beyond);
        }
        if self.done.contains(&name) {
            return Err(Misfit::Duplicate);
        }
        let Some(bytes) = self.begun.get(&name) else {
            return Ok(true);
        };
        if part.segment_len as usize != bytes.len() || part.checksum != 7 {
            return Err(Misfit::Contradiction);
        }
        let span = &bytes[part.offset as usize..end as usize];
        match span.iter().filter(|&&here| here).count() {
            0 => Ok(false),
            all if all == span.len() => Err(Misfit::Duplicate),
            _ => Err(Misfit::Overlap),
        }
    }

    fn commit(&mut self, part: &Part) -> bool {
        let name = (part.unit.0, part.segment.0);
        let bytes = self
            .begun
            .entry(name)
            .or_insert_with(|| vec![false; part.segment_len as usize]);
        bytes[part.offset as usize..(part.offset + part.len) as usize].fill(true);
        let whole = bytes.iter().all(|&here| here);
        if whole {
            self.begun.remove(&name);
            self.done.insert(name);
        }
        whole
    }

    fn complete_levels(&self) -> usize {
        let complete = |level: u8| {
            let of_level = (0u16..3).filter(|&s| LEVELS[usize::from(s)] == level);
            of_level
                .flat_map(|s| (0..UNITS).map(move |u| (u, s)))
                .all(|name| self.done.contains(&name))
        };
        (0..2u8).take_while(|&level| complete(level)).count()
    }

    fn partial(&self, priority: Priority) -> u64 {
        let of = |segment: u16| LEVELS[usize::from(segment)] > 0;
        self.begun
            .iter()
            .filter(|((_, s), _)| of(*s) == (priority == Priority::Residual))
            .map(|(_, bytes)| bytes.iter().filter(|&&here| here).count() as u64)
            .sum()
    }
}

fn part(op: &Op) -> Part {
    let (unit, segment) = (u32::from(op.unit % 4), u16::from(op.segment % 4));
    let mut part = Part {
        unit: UnitIndex(unit),
        segment: SegmentIndex(segment),
        offset: u32::from(op.offset) / 8,
        len: u32::from(op.len) / 8,
        segment_len: true_len(unit, segment),
        checksum: 7,
    };
    match op.lie {
        0..8 => part.checksum = 8,
        8..16 => part.segment_len = u32::from(op.offset),
        // Whole segments, so that transfers finish.
        16..96 => (part.offset, part.len) = (0, part.segment_len),
        _ => {}
    }
    part
}

#[test]
fn any_chunks_in_any_order_give_what_a_table_of_bytes_gives() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let plan = Arc::new(TransferPlan::new(UNITS, &LEVELS, |_, _| BOUND).unwrap());
        let mut reassembly = Reassembly::new(plan);
        let mut model = Model::default();
        let mut levels = 0;
        for op in ops {
            let part = part(op);
            let placed = reassembly.place(&part);
            // A lie about a segment's checksum or length is believed when it comes first: leave those to the transfer's
            // failure.
            let lies =
                part.checksum != 7 || part.segment_len != true_len(part.unit.0, part.segment.0);
            let expected = model.expect(&part);
            if lies && placed.is_ok() {
                return;
            }
            assert_eq!(placed, expected, "{part:?}");
            if placed.is_ok() {
                assert_eq!(reassembly.commit(&part), model.commit(&part));
            }
            while let Some(level) = reassembly.next_level() {
                assert_eq!(usize::from(level), levels);
                levels += 1;
            }
            assert_eq!(levels, model.complete_levels());
            assert_eq!(reassembly.is_complete(), levels == 2);
            for priority in Priority::ALL {
                assert_eq!(
                    reassembly.partial_bytes(priority).get(),
                    model.partial(priority)
                );
            }
        }
    });
}

#[test]
fn spans_in_any_order_are_joined() {
    let mut here = Intervals::default();
    for start in [40, 0, 20, 10, 30] {
        assert_eq!(here.coverage(start, start + 10), Coverage::Nothing);
        here.insert(start, start + 10);
        assert_eq!(here.coverage(start, start + 10), Coverage::Everything);
    }
    assert_eq!((here.spans(), here.bytes()), (1, 50));
    assert_eq!(here.coverage(45, 51), Coverage::Part);
    assert_eq!(here.coverage(50, 51), Coverage::Nothing);
}

#[test]
fn a_peer_that_scatters_its_chunks_is_refused() {
    let plan = TransferPlan::new(1, &[0], |_, _| 1 << 20).unwrap();
    let mut reassembly = Reassembly::new(Arc::new(plan));
    let part = |offset| Part {
        unit: UnitIndex(0),
        segment: SegmentIndex(0),
        offset,
        len: 1,
        segment_len: 1 << 20,
        checksum: 0,
    };
    for hole in 0..u32::try_from(MAX_SPANS).unwrap() {
        assert!(reassembly.place(&part(2 * hole)).is_ok());
        assert!(!reassembly.commit(&part(2 * hole)));
    }
    assert_eq!(reassembly.place(&part(1 << 19)), Err(Misfit::Scattered));
}
