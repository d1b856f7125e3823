//! A unit's segments, and what they give, on both.

use std::sync::Arc;

use lynx_kernels::{Codec, Profile};
use lynx_proto::engine::v1::Role;

use crate::coding::{Coding, Next};
use crate::method::Method;
use crate::pool::{Access, AccessError, Readable, Writable};
use crate::testing::gpu::{By, Kv, OnGpu, PAGE, SHAPE};
use crate::testing::prompt::{BLOCKS, TOKENS, coding, pages};
use crate::testing::{attach, make_pool, open_pool};

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn every_method_gives_the_same_segments_and_values() {
    let profile = Profile::uniform(SHAPE).unwrap();
    let codec = Codec::detect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool");
    let kv = Kv::random(TOKENS, 5);
    let mut gpu = OnGpu::new(By::Descriptor, 41);
    gpu.fill(&pages(), &kv);
    let host = attach(Role::Decode, 8);
    make_pool(directory.path(), &host, 1);
    kv.clone().exchange(&file, &host, &BLOCKS, true);
    let on_host = open_pool(directory.path(), &host, Access::Write);
    let here = Readable::new(&on_host, BLOCKS.to_vec(), TOKENS, TOKENS).unwrap();
    let pool = gpu.open(Role::Prefill);
    let there = Readable::new(&pool, pages(), TOKENS, TOKENS).unwrap();
    assert!(matches!(
        there.source(0, lynx_kernels::Kind::K, 0..64),
        Err(AccessError::Elsewhere)
    ));
    for method in [
        Method::Bf16,
        Method::Int8,
        Method::Int4,
        Method::LynxInt8,
        Method::LynxExact,
    ] {
        let coding = coding(method, &profile);
        let all = coding.transfer().segments();
        for unit in 0..coding.units().len() {
            for part in [0..coding.anchor_segments(), 0..all] {
                let encode = |blocks: &Readable| {
                    let made = coding.encode_part(&codec, &profile, unit, blocks, part.clone());
                    made.unwrap()
                };
                assert!(encode(&here) == encode(&there), "{method:?} unit {unit}");
            }
        }
    }
    // As a transfer has them: a layer's K and V at once, in memory of their own and where cards read them.
    for is_lent in [false, true] {
        assert!(!is_lent || pool.lendable().is_some());
        for method in [Method::Bf16, Method::LynxInt8, Method::LynxExact] {
            let coding = coding(method, &profile);
            let (anchor, all) = (coding.anchor_segments(), coding.transfer().segments());
            for part in [0..anchor, anchor..all, 0..all] {
                for first in (0..coding.units().len()).step_by(2) {
                    let units = first..first + 2;
                    let made =
                        coding.encode_together(&profile, units.clone(), &there, part.clone());
                    let made = made.unwrap();
                    assert_eq!(made.is_some(), method != Method::Bf16);
                    for (unit, made) in units.zip(made.into_iter().flatten()) {
                        let alone = coding.encode_part(&codec, &profile, unit, &here, part.clone());
                        assert!(made == alone.unwrap(), "{method:?} unit {unit}");
                        let pieces = made.iter().filter(|(piece, _)| !piece.is_empty());
                        assert!(
                            pieces
                                .into_iter()
                                .all(|(piece, _)| piece.is_lent() == is_lent)
                        );
                    }
                }
            }
        }
    }
    drop(here);
    let coding = [Method::Int4, Method::LynxExact].map(|method| coding(method, &profile));
    for coding in &coding {
        merges_alike(coding, &there, &profile, &mut gpu);
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn fp16_gives_the_segments_and_values_of_its_bf16() {
    let profile = Profile::uniform(SHAPE).unwrap();
    let codec = Codec::detect();
    let directory = tempfile::tempdir().unwrap();
    let kv = Kv::random(TOKENS, 6).into_fp16();
    let mut gpu = OnGpu::new(By::Descriptor, 41).of_fp16();
    gpu.fill(&pages(), &kv);
    let host = attach(Role::Decode, 8);
    make_pool(directory.path(), &host, 1);
    let file = directory.path().join("pool");
    kv.clone().exchange(&file, &host, &BLOCKS, true);
    let on_host = open_pool(directory.path(), &host, Access::Write);
    let here = Readable::new(&on_host, BLOCKS.to_vec(), TOKENS, TOKENS).unwrap();
    let on_gpu = gpu.open(Role::Prefill);
    assert!(on_gpu.coded_on().ends_with("its FP16 rounded to BF16"));
    let there = Readable::new(&on_gpu, pages(), TOKENS, TOKENS).unwrap();
    for method in [Method::Int4, Method::LynxExact] {
        let coding = coding(method, &profile);
        for unit in 0..coding.units().len() {
            let made =
                [&here, &there].map(|from| coding.encode(&codec, &profile, unit, from).unwrap());
            assert!(made[0] == made[1], "{method:?} unit {unit}");
        }
        merges_alike(&coding, &there, &profile, &mut gpu);
    }
}

/// Merges a prompt's segments as they come, on both, and compares after each level: of FP16 what that has room for.
fn merges_alike(coding: &Coding, from: &Readable, profile: &Profile, gpu: &mut OnGpu) {
    let codec = Codec::detect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool");
    let host = attach(Role::Decode, 8);
    make_pool(directory.path(), &host, 2);
    let table: Vec<u32> = (0..TOKENS.div_ceil(PAGE))
        .map(|page| page * 2 + 1)
        .collect();
    let pools = [
        open_pool(directory.path(), &host, Access::Write),
        gpu.open(Role::Decode),
    ];
    let tables = [BLOCKS.to_vec(), table.clone()];
    let mut sinks = [0, 1].map(|at| {
        let pool: &Arc<_> = &pools[at];
        Writable::new(pool, tables[at].clone(), TOKENS, 0).unwrap()
    });
    let units = 0..coding.units().len();
    let made: Vec<_> = units
        .clone()
        .map(|unit| coding.encode(&codec, profile, unit, from).unwrap())
        .collect();
    let mut records = [0, 1].map(|_| units.clone().map(|_| coding.receive()).collect::<Vec<_>>());
    for segment in 0..coding.transfer().segments() {
        for unit in units.clone() {
            let (bytes, sum) = made[unit].get(segment).unwrap();
            for (records, sink) in records.iter_mut().zip(&mut sinks) {
                let record = &mut records[unit];
                record.take(segment, bytes.to_vec(), *sum).unwrap();
                coding.decode(&codec, profile, unit, record, sink).unwrap();
                record.merged();
                assert_eq!(record.merge_next(), Next::Nothing);
            }
        }
        // Nothing can be merged of a head alone.
        if segment > 0 || coding.transfer().segments() == 1 {
            let mut here = Kv::of_file(&file, &host, &BLOCKS, TOKENS);
            if gpu.is_half() {
                here = here.into_fp16();
            }
            assert!(here == gpu.read(&table, TOKENS), "after segment {segment}");
        }
    }
    let exact = Kv::of_file(&file, &host, &BLOCKS, TOKENS) == gpu.read(&pages(), TOKENS);
    assert_eq!(exact, coding.is_exact());
}
