//! A unit's segments, and what they give; what an engine may answer, and what becomes of it when it doesn't.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use lynx_kernels::{Codec, Profile};
use lynx_proto::engine::v1::{CodeWith, Coded, Role, Segment, from_agent};
use tokio::sync::mpsc;

use crate::coding::{Coding, EncodeError, Next, Segments};
use crate::method::Method;
use crate::pool::{Access, AskError, Layout, Pool, PoolError, Readable, Unasked, Writable};
use crate::testing::by_engine::ByItself;
use crate::testing::gpu::{Kv, SHAPE};
use crate::testing::prompt::{BLOCKS, TOKENS, coding, pages};
use crate::testing::{attach, make_pool, open_pool};

/// An engine that answers on a thread of its own, and its pool as an agent has it.
struct Attached {
    engine: Arc<Mutex<ByItself>>,
    pool: Option<Arc<Pool>>,
    thread: Option<JoinHandle<()>>,
}

/// Turns an answer into another one, or none.
type Change = fn(Coded) -> Option<Coded>;

impl Attached {
    fn new(directory: &Path, file: &str, bytes: u64, change: Change) -> Self {
        let mut engine = ByItself::on_host(directory, file, bytes);
        let profile = Profile::uniform(SHAPE).unwrap().to_json().unwrap();
        engine.answer(&from_agent::Kind::CodeWith(CodeWith { profile }));
        let (outbox, mut heard) = mpsc::unbounded_channel();
        let pool = open(directory, &engine, outbox).unwrap();
        let engine = Arc::new(Mutex::new(engine));
        let (own, weak) = (Arc::clone(&engine), Arc::downgrade(&pool));
        let thread = std::thread::spawn(move || {
            while let Some(Ok(message)) = heard.blocking_recv() {
                let answer = own.lock().unwrap().answer(&message.kind.unwrap());
                let Some(pool) = weak.upgrade() else { return };
                match change(answer.unwrap()) {
                    Some(coded) => drop(pool.answered(coded)),
                    None => pool.end(),
                }
            }
        });
        Self {
            engine,
            pool: Some(pool),
            thread: Some(thread),
        }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().unwrap()
    }

    fn fill(&self, kv: &Kv) {
        self.engine.lock().unwrap().fill(&pages(), kv);
    }

    fn read(&self) -> Kv {
        self.engine.lock().unwrap().read(&pages(), TOKENS)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.pool = None;
        // Its stream has ended with the last one who could ask.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn open(
    directory: &Path,
    engine: &ByItself,
    outbox: crate::pool::Outbox,
) -> Result<Arc<Pool>, PoolError> {
    let attach = engine.attach(Role::Prefill);
    let (layout, pool) = (attach.layout.unwrap(), attach.pool.unwrap());
    let layout = Layout::by_engine(&layout).unwrap();
    let staging = pool.staging.clone().unwrap();
    Pool::by_engine(directory, &pool, &staging, layout, outbox).map(Arc::new)
}

/// A prompt in both kinds of memory.
struct World {
    directory: tempfile::TempDir,
    profile: Profile,
    kv: Kv,
}

impl World {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            profile: Profile::uniform(SHAPE).unwrap(),
            kv: Kv::random(TOKENS, 5),
        }
    }

    fn attached(&self, file: &str, bytes: u64, change: Change) -> Attached {
        let attached = Attached::new(self.directory.path(), file, bytes, change);
        attached.fill(&self.kv);
        attached
    }

    fn on_host(&self) -> Arc<Pool> {
        let host = attach(Role::Decode, 8);
        make_pool(self.directory.path(), &host, 1);
        let file = self.directory.path().join("pool");
        self.kv.clone().exchange(&file, &host, &BLOCKS, true);
        open_pool(self.directory.path(), &host, Access::Write)
    }

    fn host_values(&self) -> Kv {
        let file = self.directory.path().join("pool");
        Kv::of_file(&file, &attach(Role::Decode, 8), &BLOCKS, TOKENS)
    }

    fn encode(
        &self,
        coding: &Coding,
        unit: usize,
        from: &Readable,
        part: Range<usize>,
    ) -> Segments {
        let codec = Codec::detect();
        coding
            .encode_part(&codec, &self.profile, unit, from, part)
            .unwrap()
    }
}

#[test]
fn units_are_coded_by_an_engine_as_by_its_agent() {
    let world = World::new();
    let host = world.on_host();
    let here = Readable::new(&host, BLOCKS.to_vec(), TOKENS, TOKENS).unwrap();
    let engine = world.attached("units", 8 << 20, Some);
    let there = Readable::new(engine.pool(), pages(), TOKENS, TOKENS).unwrap();
    for method in Method::ALL {
        let coding = coding(method, &world.profile);
        let all = coding.transfer().segments();
        for unit in 0..coding.units().len() {
            for part in [
                0..coding.anchor_segments(),
                0..all,
                coding.anchor_segments()..all,
            ] {
                let expected = world.encode(&coding, unit, &here, part.clone());
                let found = world.encode(&coding, unit, &there, part);
                assert!(found == expected, "{method:?} unit {unit}");
            }
        }
    }
}

#[test]
fn units_are_merged_by_an_engine_as_by_its_agent() {
    let world = World::new();
    let engine = world.attached("from", 8 << 20, Some);
    let from = Readable::new(engine.pool(), pages(), TOKENS, TOKENS).unwrap();
    for method in Method::ALL {
        let coding = coding(method, &world.profile);
        let here = world.on_host();
        let there = Attached::new(world.directory.path(), method.id(), 4 << 20, Some);
        let mut sinks = [
            Writable::new(&here, BLOCKS.to_vec(), TOKENS, 0).unwrap(),
            Writable::new(there.pool(), pages(), TOKENS, 0).unwrap(),
        ];
        let units = 0..coding.units().len();
        let records = || units.clone().map(|_| coding.receive()).collect::<Vec<_>>();
        let mut records = [records(), records()];
        for segment in 0..coding.transfer().segments() {
            for unit in units.clone() {
                let made = world.encode(&coding, unit, &from, segment..segment + 1);
                let (bytes, sum) = &made[0];
                for (records, sink) in records.iter_mut().zip(&mut sinks) {
                    let record = &mut records[unit];
                    record.take(segment, bytes.to_vec(), *sum).unwrap();
                    let codec = Codec::detect();
                    coding
                        .decode(&codec, &world.profile, unit, record, sink)
                        .unwrap();
                    record.merged();
                    assert_eq!(record.merge_next(), Next::Nothing);
                }
            }
            // Nothing can be merged of a head alone.
            if segment > 0 || coding.transfer().segments() == 1 {
                assert!(
                    there.read() == world.host_values(),
                    "{method:?} after {segment}"
                );
            }
        }
        assert_eq!(there.read() == world.kv, coding.is_exact());
        drop(sinks);
    }
}

#[test]
fn segments_are_sent_from_where_they_lie_as_long_as_another_unit_fits_beside_them() {
    let world = World::new();
    let coding = coding(Method::LynxExact, &world.profile);
    let engine = world.attached("units", 2 << 20, Some);
    let from = Readable::new(engine.pool(), pages(), TOKENS, TOKENS).unwrap();
    let all = coding.transfer().segments();
    let expected = world.encode(&coding, 0, &from, 0..all);
    let mut held = vec![];
    while held.len() < 100 {
        let made = world.encode(&coding, 0, &from, 0..all);
        assert!(made == expected);
        held.push(made);
    }
    let is_lent = |made: &Segments| {
        made.iter()
            .filter(|it| !it.0.is_empty())
            .all(|it| it.0.is_lent())
    };
    assert!(is_lent(&held[0]));
    assert!(!is_lent(&held[99]), "there is always room for one more");
    assert!(
        held.iter().all(|made| *made == expected),
        "nobody wrote where they lie"
    );
    drop(held);
    assert!(is_lent(&world.encode(&coding, 0, &from, 0..all)));
    // They stay where they are when the pool is gone.
    let made = world.encode(&coding, 0, &from, 0..all);
    drop((from, engine));
    assert!(made == expected);
}

#[test]
fn what_an_engine_answers_wrongly_fails_the_unit_with_a_sentence() {
    let world = World::new();
    let coding = coding(Method::LynxExact, &world.profile);
    let cases: [(&str, Change, &str); 4] = [
        (
            "refused",
            |coded| {
                Some(Coded {
                    error: "no GPU".to_owned(),
                    ..coded
                })
            },
            "the engine can't code a unit: no GPU",
        ),
        (
            "few",
            |mut coded| {
                coded.segments.pop();
                Some(coded)
            },
            "the engine has coded a unit of 8 segments in 7",
        ),
        (
            "long",
            |mut coded| {
                coded.segments[1].bytes = coded.segments[0].bytes + 100_000;
                Some(coded)
            },
            "or one that is longer than it can be",
        ),
        ("gone", |_| None, "the engine is gone"),
    ];
    for (file, change, said) in cases {
        let engine = world.attached(file, 4 << 20, change);
        let from = Readable::new(engine.pool(), pages(), TOKENS, TOKENS).unwrap();
        let all = 0..coding.transfer().segments();
        let codec = Codec::detect();
        let failed = coding.encode_part(&codec, &world.profile, 0, &from, all);
        let failed = failed.unwrap_err();
        assert!(
            matches!(failed, EncodeError::Engine(_)),
            "{file}: {failed:?}"
        );
        assert!(failed.to_string().contains(said), "{file}: {failed}");
    }
    assert!(AskError::Silent.to_string().contains("within 30s"));
}

#[test]
fn an_answer_that_was_not_asked_for_or_lies_elsewhere_is_told_from_one() {
    let directory = tempfile::tempdir().unwrap();
    let engine = ByItself::on_host(directory.path(), "units", 4 << 20);
    let (outbox, mut heard) = mpsc::unbounded_channel();
    let pool = open(directory.path(), &engine, outbox).unwrap();
    assert_eq!(pool.answered(Coded::default()), Err(Unasked::Job));
    let profile = Profile::uniform(SHAPE).unwrap();
    let coding = coding(Method::LynxExact, &profile);
    let from = Readable::new(&pool, pages(), TOKENS, TOKENS).unwrap();
    std::thread::scope(|threads| {
        let encoding = threads.spawn(|| {
            let all = 0..coding.transfer().segments();
            coding.encode_part(&Codec::detect(), &profile, 0, &from, all)
        });
        let asked = heard.blocking_recv().unwrap().unwrap().kind.unwrap();
        let from_agent::Kind::Split(split) = asked else {
            panic!("{asked:?}")
        };
        let elsewhere = Segment {
            offset: split.offset + split.capacity,
            bytes: 1,
            checksum: 0,
        };
        let coded = |segments| Coded {
            job: split.job,
            segments,
            error: String::new(),
        };
        assert_eq!(pool.answered(coded(vec![elsewhere])), Err(Unasked::Outside));
        // The session ends with that; whoever waits hears of it.
        pool.end();
        let failed = encoding.join().unwrap().unwrap_err();
        assert!(
            matches!(failed, EncodeError::Engine(AskError::Gone)),
            "{failed:?}"
        );
        assert_eq!(pool.answered(coded(Vec::new())), Err(Unasked::Job));
    });
}

#[test]
fn a_staging_file_that_is_none_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let engine = ByItself::on_host(directory.path(), "units", 1 << 18);
    let attach = engine.attach(Role::Prefill);
    let layout = Layout::by_engine(attach.layout.as_ref().unwrap()).unwrap();
    let pool = attach.pool.unwrap();
    let refused = |change: fn(&mut lynx_proto::engine::v1::Pool)| {
        let mut pool = pool.clone();
        change(&mut pool);
        let staging = pool.staging.clone().unwrap();
        let (outbox, _heard) = mpsc::unbounded_channel();
        let opened = Pool::by_engine(directory.path(), &pool, &staging, layout, outbox);
        opened.unwrap_err().to_string()
    };
    let small = refused(|_| ());
    assert!(
        small.contains("has 262144 bytes") && small.contains("at least"),
        "{small}"
    );
    let longer = refused(|pool| pool.staging.as_mut().unwrap().bytes = 8 << 20);
    assert!(longer.contains("what pool.staging says"), "{longer}");
    let elsewhere = refused(|pool| pool.staging.as_mut().unwrap().file = "../units".to_owned());
    assert!(elsewhere.contains("not a plain name"), "{elsewhere}");
    let both = refused(|pool| pool.file = "pool".to_owned());
    assert!(both.contains("leave pool.file and pool.gpu out"), "{both}");
    let empty = refused(|pool| pool.blocks = 0);
    assert_eq!(empty, "the pool has no blocks");
}
