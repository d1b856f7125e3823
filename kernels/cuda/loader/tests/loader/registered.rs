//! Segments in memory of the caller's: registered, and not; with the fake driver.

use lynx_cuda::{CodeError, Coder as _, GpuCoder, InCache, Placed, Segments};
use lynx_kernels::Kind;

use crate::common::{Case, Random, STYLES};
use crate::on_gpu::{BUDGET, OnGpu, case, device, processor};

/// Memory of a caller's: as large as any unit here.
const BYTES: usize = 1 << 20;

/// Whether the segments lie in the memory as they are told to.
fn is_there(memory: &[u8], placed: &[Placed], expected: &Segments, with_tail: bool) -> bool {
    let count = expected.sums.len() - usize::from(!with_tail);
    let mut end = 0;
    placed.len() == count
        && placed.iter().enumerate().all(|(index, place)| {
            let follows = place.offset == usize::next_multiple_of(end, 16);
            end = place.offset + place.bytes;
            let bytes = memory.get(place.offset..end);
            follows && bytes == expected.unit.segment(index) && place.sum == expected.sums[index]
        })
}

/// Splits a case into memory, with its tail and without.
fn check(gpu: &mut GpuCoder, case: &Case, memory: &mut [u8]) {
    let (plan, order) = (&case.plan, &case.order);
    let device = gpu.stream().device().clone();
    let mut source = OnGpu::new(&device, plan, 32);
    source.write(gpu.stream(), plan, &case.blocks);
    for with_tail in [true, false] {
        let expected = processor()
            .split(plan, order, &case.blocks, with_tail)
            .unwrap();
        memory.fill(0xee);
        let placed = gpu.split_into(plan, order, &source.cache(), with_tail, memory);
        let placed = placed.unwrap();
        assert!(is_there(memory, &placed, &expected, with_tail), "{plan:?}");
        let end = placed.last().map_or(0, |last| last.offset + last.bytes);
        assert!(
            memory[end..].iter().all(|byte| *byte == 0xee),
            "beyond its end"
        );
        let few = gpu.split_into(
            plan,
            order,
            &source.cache(),
            with_tail,
            &mut memory[..end - 1],
        );
        assert!(matches!(few, Err(CodeError::TooSmall { .. })), "{few:?}");
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_split_comes_where_it_is_wanted() {
    let (device, images) = device();
    let mut random = Random::new(31);
    let mut memory = vec![0; BYTES];
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    // SAFETY: the memory is dropped after the coder, and let go before.
    unsafe { gpu.register(memory.as_mut_ptr(), BYTES) }.unwrap();
    assert_eq!(gpu.pinned_bytes(), BYTES);
    // Escaped groups are among the styles.
    for style in 0..STYLES {
        let kind = Kind::ALL[style % 2];
        let case = case(&mut random, style, kind, style.is_multiple_of(3));
        check(&mut gpu, &case, &mut memory[4096..]);
    }
    assert!(
        gpu.pinned_bytes() > BYTES,
        "the coder's own is counted beside it"
    );
    // Registered again it counts once, and let go not at all.
    let own = gpu.pinned_bytes() - BYTES;
    // SAFETY: as above.
    unsafe { gpu.register(memory.as_mut_ptr(), BYTES / 2) }.unwrap();
    assert_eq!(gpu.pinned_bytes(), own + BYTES / 2);
    gpu.unregister();
    assert_eq!(gpu.pinned_bytes(), own);
    check(&mut gpu, &case(&mut random, 0, Kind::K, true), &mut memory);
    // The library checks when the context goes that nothing is left of it.
    // SAFETY: as above.
    unsafe { gpu.register(memory.as_mut_ptr(), BYTES) }.unwrap();
    drop((gpu, device));
}

/// Two units, of which either may have escaped groups.
#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn several_units_come_one_behind_the_other() {
    let (device, images) = device();
    let mut random = Random::new(33);
    let mut memory = vec![0; 2 * BYTES];
    let mut gpu = GpuCoder::new(&device, images, 2 * BUDGET).unwrap();
    // SAFETY: the memory is dropped after the coder.
    unsafe { gpu.register(memory.as_mut_ptr(), 2 * BYTES) }.unwrap();
    for style in 0..STYLES {
        let cases = [(style, Kind::K), ((style + 1) % STYLES, Kind::V)]
            .map(|(style, kind)| case(&mut random, style, kind, true));
        let sources = cases.each_ref().map(|case| {
            let mut source = OnGpu::new(&device, &case.plan, 32);
            source.write(gpu.stream(), &case.plan, &case.blocks);
            source
        });
        let caches = sources.each_ref().map(OnGpu::cache);
        let units = [0, 1].map(|index| InCache {
            plan: &cases[index].plan,
            order: &cases[index].order,
            cache: &caches[index],
        });
        for with_tail in [true, false] {
            let placed = gpu.split_all_into(&units, with_tail, &mut memory).unwrap();
            let all = placed.concat();
            let expected = cases.each_ref().map(|case| {
                let split = processor().split(&case.plan, &case.order, &case.blocks, with_tail);
                let Segments { unit, mut sums } = split.unwrap();
                let count = case.plan.segments() - usize::from(!with_tail);
                sums.truncate(count);
                let segments = (0..count).map(move |index| unit.segment(index).unwrap().to_vec());
                segments.zip(sums).collect::<Vec<_>>()
            });
            assert_eq!(placed.len(), 2);
            assert_eq!(placed[0].len(), expected[0].len());
            let mut end = 0_usize;
            for (place, (bytes, sum)) in all.iter().zip(expected.concat()) {
                assert_eq!(place.offset, end.next_multiple_of(16));
                end = place.offset + place.bytes;
                assert!(memory[place.offset..end] == bytes && place.sum == sum);
            }
            let few = gpu.split_all_into(&units, with_tail, &mut memory[..end - 1]);
            assert!(matches!(few, Err(CodeError::TooSmall { .. })), "{few:?}");
        }
    }
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn what_is_refused_is_copied() {
    let (device, images) = device();
    let mut random = Random::new(32);
    let mut memory = vec![0; BYTES];
    let mut first = GpuCoder::new(&device, images.clone(), BUDGET).unwrap();
    let mut second = GpuCoder::new(&device, images.clone(), BUDGET).unwrap();
    let mut small = GpuCoder::new(&device, images, BYTES - 1).unwrap();
    // SAFETY: the memory is dropped after the coders.
    unsafe { first.register(memory.as_mut_ptr(), BYTES) }.unwrap();
    // SAFETY: as above.
    let refused = unsafe { second.register(memory.as_mut_ptr(), BYTES) };
    assert!(matches!(refused, Err(CodeError::Driver(_))), "{refused:?}");
    assert_eq!(second.pinned_bytes(), 0, "nothing is counted for it");
    // SAFETY: as above.
    let refused = unsafe { small.register(memory.as_mut_ptr(), BYTES) };
    assert!(matches!(refused, Err(CodeError::Staging(_))), "{refused:?}");
    let case = case(&mut random, 0, Kind::V, true);
    for gpu in [&mut first, &mut second, &mut small] {
        check(gpu, &case, &mut memory);
    }
}
