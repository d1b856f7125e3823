//! In which order streams do what they are asked for; with the fake driver, which does it late and by a seed.

use lynx_cuda::{Cache, CodeError, Coder as _, GpuCoder, Memory, Pass, Pinned, Stream, Trial};
use lynx_kernels::Kind;

use crate::common::Random;
use crate::on_gpu::{BUDGET, OnGpu, case, device, processor};

/// How often each is tried.
const ROUNDS: u64 = 12;

/// Splits what an engine's stream is still writing, with an event between the two streams or without; how often that was right.
fn right_splits(with_event: bool) -> u64 {
    let (device, images) = device();
    let engine = Stream::new(&device).unwrap();
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    let mut right = 0;
    for round in 0..ROUNDS {
        let case = case(&mut Random::new(round), 0, Kind::V, true);
        let (plan, order) = (&case.plan, &case.order);
        let expected = processor().split(plan, order, &case.blocks, false).unwrap();
        let mut source = OnGpu::new(&device, plan, 64);
        let copy = source.begin(&engine, plan, &case.blocks);
        if with_event {
            let event = engine.record().unwrap();
            gpu.stream().after(&event).unwrap();
        }
        let found = gpu.split(plan, order, &source.cache(), false).unwrap();
        right += u64::from(found == expected);
        copy.wait().unwrap();
    }
    right
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn an_event_comes_before_what_waits_for_it() {
    assert_eq!(right_splits(true), ROUNDS);
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn without_the_event_values_are_read_too_early() {
    assert!(right_splits(false) < ROUNDS);
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_copy_is_done_when_it_is_waited_for() {
    let (device, _) = device();
    let stream = Stream::new(&device).unwrap();
    let mut memory = Memory::new(&device, 64).unwrap();
    let mut pinned = Pinned::new(&device, 64).unwrap();
    pinned.as_mut_slice().fill(7);
    let up = stream.upload(pinned, &mut memory, 0, 64).unwrap();
    assert!(!up.is_over().unwrap());
    let back = Pinned::new(&device, 64).unwrap();
    let down = stream.download(&memory, back, &[(0, 0, 64)]).unwrap();
    // Asking goes on with the work, so that whoever asks again and again is answered.
    let asked = (0..100).take_while(|_| !down.is_over().unwrap()).count();
    assert!((1..100).contains(&asked));
    assert!(up.is_over().unwrap(), "one after the other");
    assert_eq!(down.wait().unwrap().as_slice(), [7; 64]);
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn what_was_begun_is_over_when_a_copy_is_refused() {
    let (device, images) = device();
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    let case = case(&mut Random::new(18), 0, Kind::V, true);
    let source = OnGpu::new(&device, &case.plan, 32);
    let (base, mut place) = source.parts();
    // The last of its pieces of memory.
    *place.table.last_mut().unwrap() = 1 << 24;
    // SAFETY: this library refuses the page that isn't there before it reads or writes any of it.
    let mut cache = unsafe { Cache::new(base, place) };
    let refused = gpu.read(&case.plan, &cache);
    assert!(matches!(refused, Err(CodeError::Driver(_))), "{refused:?}");
    let refused = gpu.write(&case.plan, &mut cache, &case.blocks);
    assert!(matches!(refused, Err(CodeError::Driver(_))), "{refused:?}");
    // The library has looked whether a copy was still to come when the pinned memory went.
    gpu.write(&case.plan, &mut source.cache(), &case.blocks)
        .unwrap();
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_pass_is_over_when_it_returns() {
    let (device, images) = device();
    let case = case(&mut Random::new(19), 0, Kind::V, true);
    let unit = (&case.plan, &case.order);
    let mut trial = Trial::new(&device, &images, unit, &case.blocks, 1).unwrap();
    trial.run(Pass::Split, 1).unwrap();
    trial.run(Pass::Tail, 1).unwrap();
    trial.segments(&case.order, 0).unwrap();
    trial.run(Pass::Restore, 1).unwrap();
    // Another stream waits for nothing of the trial's.
    let (other, bytes) = (Stream::new(&device).unwrap(), trial.values());
    let pinned = || Pinned::new(&device, bytes).unwrap();
    let restored = other.download(trial.sink(), pinned(), &[(0, 0, bytes)]);
    let restored = restored.unwrap().wait().unwrap();
    let values = trial.to_host(pinned(), bytes).unwrap();
    assert!(values.as_slice().iter().any(|byte| *byte != 0));
    assert!(restored.as_slice() == values.as_slice());
}
