//! What runs with the fake driver.

use lynx_cuda::{
    Cache, Captured, Choice, CodeError, Coder, Device, DriverError, GpuCoder, Images, Imported,
    InCache, InFlight, Memory, Options, Pass, Pinned, Place, Processor, Stream, Trial, Which, Why,
    bf16_of_fp16, choose, fp16_of_bf16,
};
use lynx_gpu::Pages;
use lynx_kernels::{Blocks, Codec, Cuts, Kind, KvShape, RawTokens, Simd, UnitPlan};
use lynx_units::Width;

use crate::common::{Case, Random, STYLES};
use crate::fake;

pub(crate) const BUDGET: usize = 16 << 20;

pub(crate) fn device() -> (Device, Images) {
    let options = Options {
        kernels: fake::kernels(),
        ..Options::default()
    };
    match choose(&options) {
        Choice::Gpu(device, images) => (device, images),
        Choice::Processor(why) => panic!("{why:?}"),
    }
}

/// A unit's values in memory of the GPU.
pub(crate) struct OnGpu {
    memory: Memory,
    place: Place,
    start: u32,
}

impl OnGpu {
    pub(crate) fn new(device: &Device, plan: &UnitPlan, tokens: u32) -> Self {
        Self::paged(device, plan, Pages::hnd(plan.shape(), tokens).unwrap())
    }

    pub(crate) fn paged(device: &Device, plan: &UnitPlan, pages: Pages) -> Self {
        let tokens = pages.tokens;
        let start = pages.start(plan.tokens().start);
        let count = (plan.tokens().end - start).div_ceil(tokens);
        // Backwards, with a page between each.
        let table: Vec<u32> = (0..count).rev().map(|page| page * 2).collect();
        let bytes = pages.page_stride as usize * count as usize * 2 * 2;
        Self {
            memory: Memory::new(device, bytes).unwrap(),
            place: Place {
                pages,
                table,
                half: false,
            },
            start,
        }
    }

    pub(crate) fn cache(&self) -> Cache {
        // SAFETY: the memory has all pages, and is this test's alone.
        unsafe { Cache::new(self.memory.address(), self.place.clone()) }
    }

    pub(crate) fn parts(&self) -> (u64, Place) {
        (self.memory.address(), self.place.clone())
    }

    fn at(&self, position: u32, head: usize, channel: usize) -> usize {
        let pages = self.place.pages;
        let (page, slot) = (
            (position - self.start) / pages.tokens,
            (position - self.start) % pages.tokens,
        );
        let page = u64::from(self.place.table[page as usize]) * pages.page_stride;
        let within = slot * pages.token_stride + head as u32 * pages.head_stride + channel as u32;
        (page as usize + within as usize) * 2
    }

    pub(crate) fn write(&mut self, stream: &Stream, plan: &UnitPlan, blocks: &Blocks) {
        self.begin(stream, plan, blocks).wait().unwrap();
    }

    /// Without waiting.
    pub(crate) fn begin(&mut self, stream: &Stream, plan: &UnitPlan, blocks: &Blocks) -> InFlight {
        let mut pinned = Pinned::new(stream.device(), self.memory.bytes()).unwrap();
        for (position, head, channel) in elements(plan) {
            let bits = blocks.data()[blocks.index(position, head, channel)];
            let at = self.at(position, head, channel);
            pinned.as_mut_slice()[at..at + 2].copy_from_slice(&bits.to_ne_bytes());
        }
        let bytes = self.memory.bytes();
        stream.upload(pinned, &mut self.memory, 0, bytes).unwrap()
    }

    fn read(&self, stream: &Stream, plan: &UnitPlan) -> Blocks {
        let pinned = Pinned::new(stream.device(), self.memory.bytes()).unwrap();
        let pieces = [(0, 0, self.memory.bytes())];
        let copy = stream.download(&self.memory, pinned, &pieces).unwrap();
        let pinned = copy.wait().unwrap();
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        for (position, head, channel) in elements(plan) {
            let at = self.at(position, head, channel);
            let index = blocks.index(position, head, channel);
            let bytes = &pinned.as_slice()[at..at + 2];
            blocks.data_mut()[index] = u16::from_ne_bytes([bytes[0], bytes[1]]);
        }
        blocks
    }
}

fn elements(plan: &UnitPlan) -> impl Iterator<Item = (u32, usize, usize)> {
    let shape = plan.shape();
    plan.tokens().flat_map(move |position| {
        (0..shape.kv_heads)
            .flat_map(move |head| (0..shape.head_dim).map(move |channel| (position, head, channel)))
    })
}

pub(crate) fn case(random: &mut Random, style: usize, kind: Kind, whole: bool) -> Case {
    let (kv_heads, head_dim) = [(2, 64), (2, 128), (2, 96), (1, 256)][style % 4];
    let shape = KvShape {
        layers: 1,
        kv_heads,
        head_dim,
    };
    of_shape(random, style, (shape, kind), whole)
}

fn of_shape(
    random: &mut Random,
    style: usize,
    (shape, kind): (KvShape, Kind),
    whole: bool,
) -> Case {
    let (tokens, raw) = if whole {
        (64..192, RawTokens::none())
    } else {
        (3..150, RawTokens::new(4, 141))
    };
    let cuts = Cuts::new(Width::from_eighths(28).unwrap(), 4).unwrap();
    Case::new(random, style, (shape, kind, tokens), raw, cuts)
}

pub(crate) fn processor() -> Processor {
    Processor(Codec::with_simd(Simd::Scalar).unwrap())
}

/// Codes a case both ways, and compares everything.
fn check(gpu: &mut GpuCoder, case: &Case) {
    let (plan, order) = (&case.plan, &case.order);
    let device = gpu.stream().device().clone();
    let expected = processor().split(plan, order, &case.blocks, true).unwrap();
    let pages = Pages::nhd(plan.shape(), 32).unwrap();
    let mut source = OnGpu::paged(&device, plan, pages);
    source.write(gpu.stream(), plan, &case.blocks);
    let found = gpu.split(plan, order, &source.cache(), true).unwrap();
    assert_eq!(found, expected, "{plan:?}");
    let short = processor().split(plan, order, &case.blocks, false).unwrap();
    let found = gpu.split(plan, order, &source.cache(), false).unwrap();
    assert_eq!(found, short, "without a tail");
    assert!(gpu.read(plan, &source.cache()).unwrap().data() == case.blocks.data());
    for steps in [1, plan.steps()] {
        let mut blocks = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        let read = (&expected, steps);
        processor().merge(plan, order, read, &mut blocks).unwrap();
        let sink = OnGpu::new(&device, plan, if steps == 1 { 64 } else { 128 });
        gpu.merge(plan, order, read, &mut sink.cache()).unwrap();
        assert!(sink.read(gpu.stream(), plan).data() == blocks.data());
    }
    let sink = OnGpu::new(&device, plan, 16);
    gpu.restore(plan, order, &expected, &mut sink.cache())
        .unwrap();
    assert!(sink.read(gpu.stream(), plan).data() == case.blocks.data());
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn units_are_coded_as_the_processor_codes_them() {
    let (device, images) = device();
    let mut random = Random::new(11);
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    // Each plan twice: the second time the launch is repeated.
    for style in 0..STYLES {
        for (kind, whole) in [
            (Kind::K, true),
            (Kind::V, true),
            (Kind::K, false),
            (Kind::V, false),
        ] {
            check(&mut gpu, &case(&mut random, style, kind, whole));
            check(&mut gpu, &case(&mut random, style, kind, whole));
        }
    }
    // 512 latent channels and 64 rotary ones.
    let latent = KvShape {
        layers: 1,
        kv_heads: 9,
        head_dim: 64,
    };
    for whole in [true, false] {
        let case = of_shape(&mut random, 9, (latent, Kind::V), whole);
        check(&mut gpu, &case);
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn wrong_segments_are_refused() {
    let (device, images) = device();
    let mut random = Random::new(12);
    let mut gpu = GpuCoder::new(&device, images.clone(), BUDGET).unwrap();
    let case = case(&mut random, 0, Kind::K, true);
    let (plan, order) = (&case.plan, &case.order);
    let right = processor().split(plan, order, &case.blocks, true).unwrap();
    let sink = OnGpu::new(&device, plan, 64);
    let mut cache = sink.cache();

    let mut wrong = right.clone();
    wrong.unit.steps[0][77] ^= 4;
    let refused = gpu.merge(plan, order, (&wrong, 1), &mut cache).unwrap_err();
    assert!(matches!(refused, CodeError::Checksum(1)), "{refused:?}");
    let mut wrong = right.clone();
    wrong.unit.tail[90] ^= 1;
    let refused = gpu.restore(plan, order, &wrong, &mut cache).unwrap_err();
    let tail = plan.segments() - 1;
    assert!(
        matches!(refused, CodeError::Checksum(it) if it == tail),
        "{refused:?}"
    );

    let mut wrong = right.clone();
    wrong.unit.head.pop();
    let refused = gpu.merge(plan, order, (&wrong, 1), &mut cache).unwrap_err();
    assert!(
        matches!(refused, CodeError::Length("the head")),
        "{refused:?}"
    );
    let mut wrong = right.clone();
    wrong.unit.steps[1].push(0);
    let refused = gpu.merge(plan, order, (&wrong, 2), &mut cache).unwrap_err();
    assert!(
        matches!(refused, CodeError::Length("a step")),
        "{refused:?}"
    );

    let mut small = GpuCoder::new(&device, images, 1000).unwrap();
    let refused = small.split(plan, order, &cache, true).unwrap_err();
    assert!(matches!(refused, CodeError::Staging(_)), "{refused:?}");
    // It still works after all that.
    gpu.merge(plan, order, (&right, 1), &mut cache).unwrap();
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn the_driver_is_left_as_it_was_found() {
    let (device, _) = device();
    let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let event = stream.record().unwrap();
    other.after(&event).unwrap();
    event.wait().unwrap();
    assert!(event.is_past().unwrap());

    let mut memory = Memory::new(&device, 4096).unwrap();
    let handle = memory.ipc_handle().unwrap();
    let imported = Imported::open(&device, handle).unwrap();
    assert_eq!(imported.address(), memory.address());
    assert_eq!(imported.bytes(), 4096);
    let mut unknown = handle;
    unknown.0[0] ^= 0xff;
    assert!(Imported::open(&device, unknown).is_err());

    let pinned = Pinned::new(&device, 100).unwrap();
    assert!(stream.download(&memory, pinned, &[(4000, 0, 100)]).is_err());
    stream.clear(&mut memory, 0, 4096).unwrap();
    assert!(stream.clear(&mut memory, 4000, 100).is_err());
    let mut pinned = Pinned::new(&device, 100).unwrap();
    pinned.as_mut_slice().fill(1);
    // Dropped while it may be under way: it waits.
    drop(stream.upload(pinned, &mut memory, 0, 100).unwrap());

    let nothing: Result<_, DriverError> = Captured::record(&stream, || Ok(()));
    drop(nothing.unwrap());
    // The library checks when the context goes that nothing is left of it.
    drop((imported, memory, event, stream, other));
    drop(device);
}

/// What a driver refuses while a stream is recorded, and this library too.
type Forbidden = fn(&Device, &Stream) -> Result<(), DriverError>;

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_split_is_recorded_and_repeated_as_launches_alone() {
    let (device, images) = device();
    let stream = Stream::new(&device).unwrap();
    let forbidden: [Forbidden; 4] = [
        |device, _| Memory::new(device, 16).map(drop),
        |device, _| Pinned::new(device, 16).map(drop),
        |_, stream| stream.wait(),
        |_, stream| stream.record()?.wait(),
    ];
    for what in forbidden {
        let mut refused = Ok(());
        let recorded: Result<_, DriverError> = Captured::record(&stream, || {
            refused = what(&device, &stream);
            Ok(())
        });
        assert!(refused.is_err() && recorded.is_err());
        what(&device, &stream).unwrap();
    }
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    let mut random = Random::new(14);
    for (kind, whole) in [(Kind::K, true), (Kind::V, false)] {
        let case = case(&mut random, 1, kind, whole);
        let (plan, order) = (&case.plan, &case.order);
        let expected = processor().split(plan, order, &case.blocks, true).unwrap();
        let mut source = OnGpu::new(&device, plan, 64);
        source.write(gpu.stream(), plan, &case.blocks);
        // Recorded, and then repeated.
        for _ in 0..2 {
            let found = gpu.split(plan, order, &source.cache(), true).unwrap();
            assert_eq!(found, expected);
        }
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn fp16_is_coded_as_its_bf16() {
    let (device, images) = device();
    let mut random = Random::new(15);
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    for (style, kind, whole) in [
        (0, Kind::K, true),
        (1, Kind::V, true),
        (2, Kind::V, false),
        (3, Kind::K, true),
        (9, Kind::K, false),
    ] {
        let mut case = case(&mut random, style, kind, whole);
        for bits in case.blocks.data_mut() {
            *bits = bf16_of_fp16(fp16_of_bf16(*bits));
        }
        let (plan, order) = (&case.plan, &case.order);
        let expected = processor().split(plan, order, &case.blocks, true).unwrap();
        let mut source = OnGpu::new(&device, plan, 32);
        source.place.half = true;
        gpu.write(plan, &mut source.cache(), &case.blocks).unwrap();
        let found = gpu.split(plan, order, &source.cache(), true).unwrap();
        assert_eq!(found, expected);
        let mut sink = OnGpu::new(&device, plan, 64);
        sink.place.half = true;
        gpu.restore(plan, order, &expected, &mut sink.cache())
            .unwrap();
        assert!(gpu.read(plan, &sink.cache()).unwrap().data() == case.blocks.data());
        // As they lie there, they are FP16.
        let halves = sink.read(gpu.stream(), plan);
        let of_cache = |bits: &u16| fp16_of_bf16(*bits);
        assert!(
            halves
                .data()
                .iter()
                .copied()
                .eq(case.blocks.data().iter().map(of_cache))
        );
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn each_plan_is_recorded_once() {
    let (device, images) = device();
    let mut random = Random::new(16);
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    // As layers come: K and V by turns, and values of one plan after the other.
    let plans = [Kind::V, Kind::K].map(|kind| case(&mut random, 0, kind, true));
    let mut after = Vec::new();
    for _ in 0..3 {
        for first in &plans {
            let (plan, raw) = (&first.plan, RawTokens::none());
            let shape = (plan.shape(), plan.kind(), plan.tokens());
            let case = Case::new(&mut random, 0, shape, raw, plan.cuts());
            let expected = processor()
                .split(plan, &case.order, &case.blocks, true)
                .unwrap();
            let mut source = OnGpu::new(&device, plan, 64);
            source.write(gpu.stream(), plan, &case.blocks);
            let found = gpu.split(plan, &case.order, &source.cache(), true).unwrap();
            assert_eq!(found, expected);
            let read = (&expected, plan.steps());
            gpu.merge(plan, &case.order, read, &mut source.cache())
                .unwrap();
            gpu.restore(plan, &case.order, &expected, &mut source.cache())
                .unwrap();
            assert!(source.read(gpu.stream(), plan).data() == case.blocks.data());
        }
        after.push(gpu.recorded());
    }
    // Memory for the larger plan may have come after the smaller one's.
    assert_eq!(after[1], after[2]);
    assert!(after[0] <= 6 && after[1] <= 9, "{after:?}");
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn k_and_v_are_coded_as_the_processor_codes_them_in_one_launch() {
    let (device, images) = device();
    let mut random = Random::new(17);
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    for whole in [true, false] {
        let before = gpu.recorded();
        // Of one head's size; escaped groups are among them.
        for style in (1..STYLES).step_by(4) {
            let cases = Kind::ALL.map(|kind| case(&mut random, style, kind, whole));
            let caches = cases.each_ref().map(|case| {
                let mut source = OnGpu::new(&device, &case.plan, 32);
                source.write(gpu.stream(), &case.plan, &case.blocks);
                (source.cache(), source)
            });
            let units = [0, 1].map(|at: usize| InCache {
                plan: &cases[at].plan,
                order: &cases[at].order,
                cache: &caches[at].0,
            });
            for with_tail in [true, false] {
                let found = gpu.split_all(&units, with_tail).unwrap();
                let expected = cases.each_ref().map(|case| {
                    let (plan, order) = (&case.plan, &case.order);
                    let made = processor().split(plan, order, &case.blocks, with_tail);
                    made.unwrap()
                });
                assert!(found == expected, "style {style}");
            }
        }
        assert_eq!(gpu.recorded() - before, 2, "with tails and without");
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn what_is_measured_is_what_the_processor_makes() {
    let (device, images) = device();
    let mut random = Random::new(13);
    for kind in [Kind::K, Kind::V] {
        let case = case(&mut random, 0, kind, true);
        let (plan, order) = (&case.plan, &case.order);
        let expected = processor().split(plan, order, &case.blocks, true).unwrap();
        let mut trial = Trial::new(&device, &images, (plan, order), &case.blocks, 3).unwrap();
        trial.run(Pass::Split, 1).unwrap();
        trial.run(Pass::Tail, 2).unwrap();
        assert!(trial.segments(order, 2).unwrap() == expected.unit);
        trial.run(Pass::Merge(1), 1).unwrap();
        assert!(!trial.is_restored().unwrap());
        trial.run(Pass::Restore, 1).unwrap();
        assert!(trial.is_restored().unwrap());
        trial.run(Pass::Copy, 1).unwrap();
        assert_eq!(trial.moved(Pass::Copy), 2 * trial.values());
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn missing_kernels_are_a_reason() {
    let options = Options {
        kernels: fake::kernels().join("nowhere"),
        ..Options::default()
    };
    let choice = choose(&options);
    assert!(
        choice
            .to_string()
            .contains("there are no kernels for the GPU")
    );
    assert!(matches!(choice, Choice::Processor(Why::Kernels(_))));
    let other = Options {
        device: Which::Number(7),
        ..options
    };
    assert!(matches!(
        choose(&other),
        Choice::Processor(Why::NoDevice(Which::Number(7)))
    ));
}

#[test]
#[ignore = "needs a library that is no driver, with which another test runs it"]
fn another_library_is_a_reason() {
    let choice = choose(&Options::default());
    assert!(matches!(
        choice,
        Choice::Processor(Why::OldDriver("cuInit"))
    ));
}
