//! Memory that two processes share, and the GPU's number by which they agree on it; with the fake driver.

use std::fs::File;
use std::os::fd::AsFd as _;

use lynx_cuda::{
    Cache, Choice, Coder as _, GpuCoder, Mapped, Options, Place, Uuid, Which, Why, choose,
};
use lynx_gpu::Pages;
use lynx_kernels::Kind;

use crate::common::Random;
use crate::on_gpu::{BUDGET, case, device, processor};

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_descriptor_maps_the_same_memory_again() {
    let (device, images) = device();
    let owner = Mapped::new(&device, 3 << 20).unwrap();
    assert_eq!(owner.bytes(), 4 << 20, "the granularity is 2 MiB");
    let descriptor = owner.descriptor().unwrap();
    let twice = Mapped::import(&device, descriptor.as_fd(), owner.bytes()).unwrap();
    assert_ne!(owner.address(), twice.address());
    assert!(Mapped::import(&device, descriptor.as_fd(), 2 << 20).is_err());
    let other = File::open("/dev/null").unwrap();
    assert!(Mapped::import(&device, other.as_fd(), 4 << 20).is_err());
    drop(descriptor);

    let case = case(&mut Random::new(21), 0, Kind::V, true);
    let (plan, order) = (&case.plan, &case.order);
    let pages = Pages::nhd(plan.shape(), 16).unwrap();
    let place = Place {
        pages,
        table: vec![7, 3, 0, 5, 1, 2, 9, 4],
        half: false,
    };
    // SAFETY: the memory has more than ten such pages, and is this test's alone.
    let cache = |memory: &Mapped| unsafe { Cache::new(memory.address(), place.clone()) };
    let mut gpu = GpuCoder::new(&device, images, BUDGET).unwrap();
    gpu.write(plan, &mut cache(&owner), &case.blocks).unwrap();
    let found = gpu.split(plan, order, &cache(&twice), true).unwrap();
    let expected = processor().split(plan, order, &case.blocks, true).unwrap();
    assert_eq!(found, expected);
    // What one holds stays, whoever lets go first.
    drop(owner);
    assert!(gpu.read(plan, &cache(&twice)).unwrap().data() == case.blocks.data());
    // The library checks when the context goes that nothing is left of it.
    drop((twice, gpu));
}

#[test]
#[ignore = "needs the fake driver, with which another test runs it"]
fn a_gpu_has_one_number_everywhere() {
    let (device, _) = device();
    let uuid = device.uuid();
    assert_eq!(uuid.to_string(), "GPU-4c796e78-2773-2066-616b-65204750552e");
    let options = |uuid| Options {
        device: Which::Uuid(uuid),
        kernels: crate::fake::kernels(),
    };
    match choose(&options(uuid)) {
        Choice::Gpu(found, _) => assert_eq!(found.uuid(), uuid),
        Choice::Processor(why) => panic!("{why:?}"),
    }
    let other = Uuid([1; 16]);
    let choice = choose(&options(other));
    assert!(
        choice
            .to_string()
            .ends_with("no GPU-01010101-0101-0101-0101-010101010101")
    );
    assert!(matches!(choice, Choice::Processor(Why::NoDevice(Which::Uuid(it))) if it == other));
}
