use alloc::vec::Vec;
use core::time::Duration;

use bolero::TypeGenerator;

use super::*;
use crate::limits::MAX_CHUNK;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Op {
    Push {
        name: u8,
        level: u8,
        unit: u8,
        len: u32,
    },
    Remove {
        name: u8,
    },
    Next {
        residual: bool,
        chunk: u32,
        credit: u32,
    },
}

/// A list that is searched from end to end: slow, obvious, true.
#[derive(Debug, Default)]
struct Model {
    segments: Vec<(Priority, Key, Whole, u32)>,
}

impl Model {
    fn best(&self, priority: Priority) -> Option<usize> {
        let mut here: Vec<_> = (0..self.segments.len())
            .filter(|&at| self.segments[at].0 == priority)
            .collect();
        // A started segment first, then the smallest key.
        here.sort_by_key(|&at| (self.segments[at].3 == 0, self.segments[at].1));
        here.first().copied()
    }

    fn next(&mut self, priority: Priority, chunk: u32, credit: u32) -> Option<Piece> {
        let at = self.best(priority)?;
        let (_, key, whole, offset) = self.segments[at];
        let rest = whole.len - offset;
        let len = rest.min(chunk).min(credit);
        if len < rest && len < chunk && len < MIN_CHUNK {
            return None;
        }
        self.segments[at].3 += len;
        if self.segments[at].3 == whole.len {
            self.segments.remove(at);
        }
        Some(Piece {
            key,
            whole,
            offset,
            len,
        })
    }
}

fn priority(residual: bool) -> Priority {
    if residual {
        Priority::Residual
    } else {
        Priority::Anchor
    }
}

fn key(name: u8, level: u8, unit: u8) -> Key {
    let name = name % 4;
    Key {
        deadline: Timestamp::from_origin(Duration::from_secs(u64::from(name * 7 % 3))),
        transfer: TransferId(u64::from(name)),
        level: level % 4,
        unit: UnitIndex(u32::from(unit % 8)),
        segment: SegmentIndex(0),
    }
}

#[test]
fn any_sequence_of_operations_gives_what_a_plain_list_gives() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut scheduler = Scheduler::default();
        let mut model = Model::default();
        for op in ops {
            match *op {
                Op::Push {
                    name,
                    level,
                    unit,
                    len,
                } => {
                    let key = key(name, level, unit);
                    if model.segments.iter().any(|(_, other, ..)| *other == key) {
                        continue;
                    }
                    let whole = Whole {
                        len: len % (2 * MAX_CHUNK),
                        checksum: u64::from(unit),
                    };
                    let priority = priority(key.level > 0);
                    scheduler.push(priority, key, whole);
                    model.segments.push((priority, key, whole, 0));
                }
                Op::Remove { name } => {
                    let key = key(name, 0, 0);
                    scheduler.remove(key.deadline, key.transfer);
                    model
                        .segments
                        .retain(|(_, other, ..)| other.transfer != key.transfer);
                }
                Op::Next {
                    residual,
                    chunk,
                    credit,
                } => {
                    let priority = priority(residual);
                    let chunk = MIN_CHUNK + chunk % (MAX_CHUNK - MIN_CHUNK + 1);
                    let credit = credit % (2 * MAX_CHUNK);
                    let granted = Bytes::new(u64::from(credit));
                    let readiness = scheduler.readiness(priority, granted);
                    let idle = model.best(priority).is_none();
                    let piece = scheduler.next(priority, chunk, granted);
                    assert_eq!(piece, model.next(priority, chunk, credit));
                    assert_eq!(readiness == Readiness::Ready, piece.is_some());
                    assert_eq!(readiness == Readiness::Idle, idle);
                }
            }
        }
    });
}

#[test]
fn urgency_grows_from_idle_to_ready() {
    assert!(Readiness::Idle < Readiness::Blocked && Readiness::Blocked < Readiness::Ready);
}

#[test]
fn deadlines_come_before_levels_and_levels_before_units() {
    let at = |deadline, level, unit| Key {
        deadline: Timestamp::from_origin(Duration::from_secs(deadline)),
        transfer: TransferId(9 - deadline),
        level,
        unit: UnitIndex(unit),
        segment: SegmentIndex(0),
    };
    let order = [
        at(1, 1, 0),
        at(1, 1, 1),
        at(1, 2, 0),
        at(2, 1, 0),
        at(2, 2, 7),
    ];
    let mut scheduler = Scheduler::default();
    for key in order.iter().rev() {
        scheduler.push(
            Priority::Residual,
            *key,
            Whole {
                len: 10,
                checksum: 0,
            },
        );
    }
    let credit = Bytes::from_mib(1);
    let sent: Vec<Key> =
        core::iter::from_fn(|| scheduler.next(Priority::Residual, MIN_CHUNK, credit))
            .map(|piece| piece.key)
            .collect();
    assert_eq!(sent, order);
}
