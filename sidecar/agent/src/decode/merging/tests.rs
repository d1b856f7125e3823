//! Which transfer's work is done first.

use std::cell::RefCell;
use std::time::Duration;

use lynx_kernels::KvShape;
use lynx_proto::engine::v1::Role;

use super::*;
use crate::coding::Descriptor;
use crate::identity::profile_name;
use crate::method::Method;
use crate::pool::{Access, Readable};
use crate::testing::{attach, make_pool, open_pool};

const SHAPE: KvShape = KvShape {
    layers: 2,
    kv_heads: 2,
    head_dim: 64,
};
const TOKENS: u32 = 700;

/// A transfer whose segments are made from a pool, and where they go.
struct Transfer {
    coding: Arc<Coding>,
    segments: Vec<Vec<Vec<u8>>>,
    profile: Arc<Profile>,
    table: Option<Writable>,
    _directory: tempfile::TempDir,
}

impl Transfer {
    fn new(seed: u64) -> Self {
        let profile = Arc::new(Profile::uniform(SHAPE).unwrap());
        let descriptor = Descriptor {
            method: lynx_proto::peer::v1::Method::from(Method::LynxExact).into(),
            prompt_tokens: TOKENS,
            from_token: 0,
            anchor_k_eighths: 32,
            anchor_v_bits: 4,
            profile: profile_name(&profile),
        };
        let coding = Arc::new(Coding::new(SHAPE, &descriptor).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let engine = attach(Role::Decode, 16);
        make_pool(directory.path(), &engine, seed);
        let blocks: Vec<u32> = (0..11).collect();
        let pool = open_pool(directory.path(), &engine, Access::Read);
        let source = Readable::new(&pool, blocks.clone(), TOKENS, TOKENS).unwrap();
        let encode = |unit| {
            let encoded = coding.encode(&Codec::detect(), &profile, unit, &source);
            let segments = encoded.unwrap().into_iter();
            segments.map(|(bytes, _)| bytes.into_vec()).collect()
        };
        let segments = (0..coding.units().len()).map(encode).collect();
        let pool = open_pool(directory.path(), &engine, Access::Write);
        let table = Some(Writable::new(&pool, blocks, TOKENS, 0).unwrap());
        Self {
            coding,
            segments,
            profile,
            table,
            _directory: directory,
        }
    }

    fn arriving(&self, deadline: u64) -> Arriving {
        let deadline = Timestamp::from_origin(Duration::from_secs(deadline));
        Arriving::new(
            Arc::clone(&self.coding),
            Arc::clone(&self.profile),
            deadline,
        )
    }

    /// These segments of every unit are here, and are to be merged.
    fn arrive(&mut self, arriving: &mut Arriving, segments: std::ops::Range<usize>) {
        for (unit, encoded) in self.segments.iter().enumerate() {
            for segment in segments.clone() {
                let bytes = encoded[segment].clone();
                let sum = checksum(&bytes);
                arriving.units[unit].take(segment, bytes, sum).unwrap();
            }
            arriving.fresh.push(unit);
        }
        let table = self.table.take().unwrap();
        arriving.jobs.push_back(Task::Merge(table));
    }
}

#[test]
fn an_anchor_is_merged_before_what_refines_another_request() {
    let done = RefCell::new(Vec::new());
    let mut worker = Worker::new(|told: Done| {
        assert!(told.error.is_none(), "{:?}", told.error);
        done.borrow_mut().push(told);
    });
    let (old, new) = (TransferId(1), TransferId(2));
    let mut first = Transfer::new(1);
    let mut arriving = first.arriving(1);
    first.arrive(&mut arriving, 0..2);
    worker.transfers.insert(old, arriving);
    while worker.step() {}
    first.table = done.borrow_mut().pop().unwrap().table;
    // The first request's KV is refined, unit by unit, when a second request's anchor comes.
    first.arrive(worker.transfers.get_mut(&old).unwrap(), 2..7);
    assert!(worker.step());
    let mut second = Transfer::new(2);
    let mut arriving = second.arriving(9);
    second.arrive(&mut arriving, 0..2);
    worker.transfers.insert(new, arriving);
    let units = second.coding.units().len();
    for _ in 0..units {
        assert!(done.borrow().is_empty());
        assert!(worker.step());
    }
    assert_eq!(done.borrow()[0].transfer, new);
    while worker.step() {}
    let order: Vec<TransferId> = done.borrow().iter().map(|told| told.transfer).collect();
    assert_eq!(order, [new, old]);
}

#[test]
fn of_two_anchors_the_older_deadline_is_first() {
    let done = RefCell::new(Vec::new());
    let mut worker = Worker::new(|told: Done| done.borrow_mut().push(told.transfer));
    for (number, deadline) in [(1, 9), (2, 3)] {
        let mut transfer = Transfer::new(number);
        let mut arriving = transfer.arriving(deadline);
        transfer.arrive(&mut arriving, 0..2);
        worker.transfers.insert(TransferId(number), arriving);
    }
    while worker.step() {}
    assert_eq!(*done.borrow(), [TransferId(2), TransferId(1)]);
}

#[test]
fn a_transfer_that_is_closed_has_no_more_work() {
    let mut worker = Worker::new(|told: Done| panic!("{told:?}"));
    let mut transfer = Transfer::new(1);
    let mut arriving = transfer.arriving(1);
    transfer.arrive(&mut arriving, 0..2);
    worker.note(Job::Open(TransferId(1), Box::new(arriving)));
    assert!(worker.step());
    worker.note(Job::Close(TransferId(1)));
    assert!(!worker.step());
}
